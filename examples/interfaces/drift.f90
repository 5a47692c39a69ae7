! SPDX-License-Identifier: BSL-1.0
!
! A simulation that trains a network while it runs: heat that spreads and drifts on a periodic square. In each time step
! the network learns from the last states what the solver computes, the rate of change. drift.c is the same program in C.
program drift
  use, intrinsic :: iso_fortran_env, only: real32, real64, int64
  use gradus
  implicit none
  integer, parameter :: nx = 32, ny = 24, window = 16, steps = 400
  real(real32), parameter :: dt = 0.1
  real(real32) :: u(nx, ny), rate(nx, ny), guess(nx, ny)
  real(real32), target :: states(nx, ny, window), rates(nx, ny, window)  ! images of one channel, the last axis is samples
  type(gradus_network) :: net
  type(gradus_data) :: data
  type(gradus_trainer) :: trainer
  type(gradus_report) :: report
  integer(int64) :: x
  integer :: i, j, step
  real :: error

  call net%create(gradus_real32)
  x = net%input('u', channels=1, rows=ny, columns=nx)
  x = net%conv2d(x, out_channels=16, kernel=[3], padding=gradus_same, padding_mode=gradus_circular)
  x = net%activation(x, gradus_tanh)
  x = net%conv2d(x, out_channels=1, kernel=[3], padding=gradus_same, padding_mode=gradus_circular)
  call net%output('rate', x)
  call net%loss('rate', gradus_mean_squared_error)
  call net%compile(max_batch_size=8, seed=1)
  call trainer%create(net, optimizer=gradus_adam, learning_rate=0.005_real64, global_batch_size=8)
  call data%create()
  call data%set('u', states)
  call data%set('rate', rates)

  do j = 1, ny
    do i = 1, nx
      u(i, j) = real(sin(6.2831853*i/nx)*cos(12.566371*j/ny) + 0.5*sin(25.132741*(real(i)/nx + real(j)/ny)), real32)
    end do
  end do
  do step = 1, steps
    rate = solver(u)
    states(:, :, mod(step - 1, window) + 1) = u
    rates(:, :, mod(step - 1, window) + 1) = rate
    if (step >= window) call trainer%train_steps(data, 4, report)  ! or: call trainer%train_for(data, 5.0_real64)
    u = u + dt*rate
    if (mod(step, 100) == 0) then
      call net%predict('u', u, 'rate', guess)
      error = norm2(guess - solver(u))/norm2(solver(u))
      print '(a, i4, a, es9.2, a, f6.3)', 'time step', step, ': loss', report%loss, ', error of the prediction', error
    end if
  end do
  print '(i0, a, i0, a)', trainer%steps(), ' updates in ', steps, ' time steps'
  if (error > 0.3) error stop 'the network has not learned'

contains

  !> The rate of change: div((1 + t/2) grad t)/20 - (dt/dx)/2.
  pure function solver(t) result(change)
    real(real32), intent(in) :: t(nx, ny)
    real(real32) :: change(nx, ny), k(nx, ny), fx(nx, ny), fy(nx, ny)
    k = 1 + t/2
    fx = (k + cshift(k, 1, 1))/2*(cshift(t, 1, 1) - t)
    fy = (k + cshift(k, 1, 2))/2*(cshift(t, 1, 2) - t)
    change = (fx - cshift(fx, -1, 1) + fy - cshift(fy, -1, 2))/20 - (cshift(t, 1, 1) - cshift(t, -1, 1))/4
  end function
end program

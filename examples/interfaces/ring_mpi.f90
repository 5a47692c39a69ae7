! SPDX-License-Identifier: BSL-1.0
!
! A simulation on several ranks that trains one network: a wave on a periodic ring, a part of it on each rank. Each rank
! trains on points of its own, and the update is that of one process with all of them. The network learns how a point
! changes from its own and its neighbors' values.
program ring_mpi
  use, intrinsic :: iso_fortran_env, only: real64, int64
  use mpi_f08
  use gradus
  implicit none
  integer, parameter :: points = 2400, steps = 300
  real(real64), parameter :: dt = 0.2
  real(real64), allocatable, target :: u(:), rate(:), stencil(:, :)
  real(real64), allocatable :: guess(:)
  real(real64) :: squares(2), mean
  type(gradus_communicator) :: ranks
  type(gradus_network) :: net
  type(gradus_data) :: data
  type(gradus_trainer) :: trainer
  type(gradus_report) :: report
  integer(int64) :: x
  integer :: provided, rank, size_of_world, first, own, i, step

  call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world)
  first = rank*points/size_of_world
  own = (rank + 1)*points/size_of_world - first
  allocate (u(0:own + 1), rate(own), guess(own), stencil(3, own))  ! u has the points of the neighbors, too

  call ranks%create_mpi(MPI_COMM_WORLD%mpi_val)
  call net%create(gradus_real64)
  x = net%input('stencil', channels=3)
  x = net%dense(x, 24)
  x = net%activation(x, gradus_tanh)
  x = net%dense(x, 1)
  call net%output('rate', x)
  call net%loss('rate', gradus_mean_squared_error)
  call net%compile(max_batch_size=own, seed=1)
  call trainer%create(net, optimizer=gradus_adam, learning_rate=0.01_real64, comm=ranks)
  call data%create()
  call data%set('stencil', stencil)
  call data%set('rate', rate)

  do i = 1, own
    u(i) = sin(6.283185307_real64*(first + i)/24) + sin(6.283185307_real64*(first + i)/points)/2
  end do
  do step = 1, steps
    call exchange()
    do i = 1, own
      stencil(:, i) = u(i - 1:i + 1)
      rate(i) = (1 + u(i)/2)*(u(i - 1) - 2*u(i) + u(i + 1))/20 - (u(i + 1) - u(i - 1))/4
    end do
    call trainer%step(data, report)
    u(1:own) = u(1:own) + dt*rate
  end do
  call net%predict('stencil', stencil, 'rate', guess)
  mean = sum(rate)
  call MPI_Allreduce(MPI_IN_PLACE, mean, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  mean = mean/points
  squares = [sum((guess - rate)**2), sum((rate - mean)**2)]
  call MPI_Allreduce(MPI_IN_PLACE, squares, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) then
    print '(a, i0, a, es9.2, a, f6.3)', 'ranks: ', size_of_world, ', loss', report%loss, ', error of the prediction', &
      sqrt(squares(1)/squares(2))
  end if
  call trainer%free()  ! before MPI_Finalize
  call ranks%free()
  call MPI_Finalize()
  if (report%examples /= points .or. squares(1) > 0.04*squares(2)) error stop 'the network has not learned'

contains

  !> The points at the ends of the neighbors.
  subroutine exchange()
    integer :: left, right
    left = modulo(rank - 1, size_of_world)
    right = modulo(rank + 1, size_of_world)
    call MPI_Sendrecv(u(own), 1, MPI_DOUBLE_PRECISION, right, 1, u(0), 1, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(1), 1, MPI_DOUBLE_PRECISION, left, 2, u(own + 1), 1, MPI_DOUBLE_PRECISION, right, 2, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine
end program

! SPDX-License-Identifier: BSL-1.0
!
! The training of case.h in Fortran: its weights go to the file that the first argument names, for the comparison with
! those of C and C++. And errors, finalizers, strides, double, checkpoints, callbacks.
module cases
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
  use, intrinsic :: iso_c_binding
  use gradus
  use gradus_c_interface, only: gradus_open_handles
  implicit none
  integer, parameter :: samples = 24, channels = 2, rows = 6, columns = 5, batch = 8, steps = 9
  integer :: failed = 0
  integer(c_int64_t), target :: calls = 0

contains

  subroutine check(condition, what)
    logical, intent(in) :: condition
    character(*), intent(in) :: what
    if (.not. condition) then
      print '(2a)', 'failed: ', what
      failed = failed + 1
    end if
  end subroutine

  !> As of case.h; indices from 0.
  pure function input_at(n, c, h, w) result(value)
    integer, intent(in) :: n, c, h, w
    real(real64) :: value
    value = (mod(n*7 + c*5 + h*3 + w*11, 17) - 8)/8.0_real64
  end function

  pure function target_at(n, h, w) result(value)
    integer, intent(in) :: n, h, w
    real(real64) :: value
    value = (input_at(n, 0, h, w) - input_at(n, 1, h, mod(w + 1, columns)))/2
  end function

  subroutine make_network(net, element)
    type(gradus_network), intent(inout) :: net
    integer, intent(in) :: element
    integer(int64) :: x
    call net%create(element)
    x = net%input('state', channels=channels, rows=rows, columns=columns)
    x = net%conv2d(x, out_channels=4, kernel=[3], padding=gradus_same, padding_mode=gradus_circular, name='conv1')
    x = net%activation(x, gradus_tanh, name='tanh1')
    x = net%dropout(x, 0.1_real64, name='dropout1')
    x = net%conv2d(x, out_channels=1, kernel=[1], name='conv2')
    call net%output('rate', x)
    call net%loss('rate', gradus_mean_squared_error)
    call net%compile(max_batch_size=batch, seed=3)
    call check(all(net%value_shape(x) == [columns, rows, 1]), 'the shape of an image of one channel')
  end subroutine

  !> Weights after some steps on the data.
  subroutine train(net, data, element, done)
    type(gradus_network), intent(inout) :: net
    type(gradus_data), intent(in) :: data
    integer, intent(in) :: element, done
    type(gradus_trainer) :: trainer
    type(gradus_report) :: report
    call make_network(net, element)
    call trainer%create(net, learning_rate=0.1_real64, momentum=0.9_real64, global_batch_size=batch, seed=5)
    call trainer%train_steps(data, done, report)
    call check(report%steps == done .and. trainer%steps() == done, 'the number of steps')
  end subroutine

  function stops_at_three(report, context) bind(c) result(stops)
    type(gradus_step_report), intent(in) :: report
    type(c_ptr), value :: context
    integer(c_int) :: stops
    integer(c_int64_t), pointer :: counted
    call c_f_pointer(context, counted)
    counted = counted + 1
    stops = merge(1, 0, report%step == 2)
  end function

  function falls(step, context) bind(c) result(rate)
    integer(c_int64_t), value :: step
    type(c_ptr), value :: context
    real(c_double) :: rate
    rate = 0.1_c_double/real(1 + step, c_double)
    if (c_associated(context)) rate = 0
  end function

  subroutine same_bits(path)
    character(*), intent(in) :: path
    type(gradus_network) :: net, strided
    type(gradus_data) :: data
    real(real32), target :: inputs(columns, rows, channels, samples), targets(columns, rows, samples)
    real(real64), target :: with_gaps(2*columns, rows, channels, -1:3*samples)
    real(real32) :: weights(72), others(72), rates(columns, rows, samples), every_second(columns, rows, samples/2)
    integer :: n, c, h, w
    do n = 1, samples
      do h = 1, rows
        do w = 1, columns
          do c = 1, channels
            inputs(w, h, c, n) = real(input_at(n - 1, c - 1, h - 1, w - 1), real32)
          end do
          targets(w, h, n) = real(target_at(n - 1, h - 1, w - 1), real32)
        end do
      end do
    end do
    call data%create()
    call data%set('state', inputs)
    call data%set('rate', targets)
    call train(net, data, gradus_real32, steps)
    call net%save_weights(path)
    call check(net%parameters() == 4, 'the number of parameters')

    with_gaps = 0
    with_gaps(2::2, :, :, 1::3) = inputs
    call data%set('state', with_gaps(2::2, :, :, 1::3))
    call train(strided, data, gradus_real32, steps)
    call net%get_parameter('conv1.weight', weights)
    call strided%get_parameter('conv1.weight', others)
    call check(all(weights == others), 'the same weights from an array with strides in real64')

    call net%predict('state', inputs, 'rate', rates)
    call net%predict('state', inputs(:, :, :, samples:1:-2), 'rate', every_second(:, :, samples/2:1:-1))
    call check(all(every_second == rates(:, :, 2::2)) .and. maxval(abs(rates)) > 0.1, 'predictions from strides')
    call net%predict('state', inputs(:, :, :, 4), 'rate', every_second(:, :, 1))
    call check(all(every_second(:, :, 1) == rates(:, :, 4)), 'the prediction of one sample')
  end subroutine

  subroutine double_and_classes()
    type(gradus_device) :: device
    type(gradus_network) :: net
    type(gradus_data) :: data
    type(gradus_trainer) :: trainer
    type(gradus_report) :: report
    real(real64), target :: points(2, 40), weights(40)
    integer, target :: classes(40)
    integer(int64) :: x
    integer :: i
    do i = 1, 40
      points(:, i) = [cos(real(i, real64)), sin(real(i, real64))]
      classes(i) = merge(1, 0, points(1, i) > points(2, i))
    end do
    weights = 1
    call device%create(threads=1)
    call check(device%threads() == 1, 'one thread')
    call net%create(gradus_real64, device)
    x = net%input('point', channels=2)
    x = net%dense(x, 8)
    x = net%activation(x, gradus_relu)
    x = net%dense(x, 2, name='scores')
    call net%output('class', x)
    call net%loss('class', gradus_softmax_cross_entropy)
    call net%compile(max_batch_size=20)
    call check(index(net%summary(), 'scores') > 0 .and. net%parameter_name(1) == 'scores.weight', 'the summary')
    call data%create()
    call data%set('point', points)
    call data%set('class', classes)
    call data%set_weights(weights)
    call trainer%create(net, optimizer=gradus_adam, learning_rate=0.02_real64, global_batch_size=20)
    call trainer%train_epochs(data, 150)
    call trainer%evaluate(data, report)
    call check(report%accuracy > 0.94_real64 .and. report%examples == 40, 'a classifier in double')
  end subroutine

  !> An option that is given is used, 0 too.
  subroutine options_of_zero()
    type(gradus_network) :: net
    type(gradus_trainer) :: trainer
    type(gradus_data) :: data
    real(real64), target :: inputs(2, 8), targets(8)
    real(real64) :: before(8), after(8), moved(8), rectified(2, 8)
    integer(int64) :: x
    integer :: i, stat
    character(300) :: text
    do i = 1, 8
      inputs(:, i) = [cos(real(i, real64)), -sin(real(i, real64))]
    end do
    targets = 3
    call net%create(gradus_real64)
    x = net%input('x', channels=2)
    x = net%activation(x, gradus_leaky_relu, parameter=0.0_real64)
    call net%output('y', x)
    call net%compile(max_batch_size=8, inference=.true.)
    call net%predict('x', inputs, 'y', rectified)
    call check(all(rectified >= 0), 'a slope of 0')
    call net%create(gradus_real64)
    x = net%input('x', channels=2)
    x = net%dense(x, 1)
    call net%output('y', x)
    call net%loss('y', gradus_mean_squared_error)
    call net%compile(max_batch_size=8)
    call data%create()
    call data%set('x', inputs)
    call data%set('y', targets)
    call trainer%create(net, learning_rate=0.0_real64, global_batch_size=8)
    call net%predict('x', inputs, 'y', before)
    call trainer%train_steps(data, 2)
    call net%predict('x', inputs, 'y', after)
    call check(all(after == before), 'a learning rate of 0')
    call trainer%create(net, optimizer=gradus_adam, beta1=0.0_real64, global_batch_size=8)
    call trainer%train_steps(data, 2)
    call net%predict('x', inputs, 'y', moved)
    call check(any(moved /= before), 'the default learning rate')
    text = ''
    call trainer%create(net, optimizer=gradus_adam, epsilon=0.0_real64, stat=stat, errmsg=text)
    call check(stat == gradus_configuration_error .and. index(text, 'epsilon') > 0, 'an epsilon of 0')
  end subroutine

  subroutine calls_and_checkpoints(folder)
    character(*), intent(in) :: folder
    type(gradus_network) :: net
    type(gradus_trainer) :: trainer
    type(gradus_data) :: data
    type(gradus_report) :: report
    real(real32), target :: inputs(columns, rows, channels, samples), targets(columns, rows, samples)
    logical :: found
    inputs = 0.5
    targets = 0.25
    call data%create()
    call data%set('state', inputs)
    call data%set('rate', targets)
    call make_network(net, gradus_real32)
    call trainer%create(net, optimizer=gradus_adam_w, global_batch_size=batch)
    call trainer%resume(folder, found)
    call check(.not. found, 'no checkpoint yet')
    call trainer%set_step_callback(stops_at_three, c_loc(calls))
    call trainer%set_schedule(falls)
    call trainer%set_checkpoints(folder, every=1)
    call trainer%train_for(data, 60000.0_real64, report)
    call check(calls == 3 .and. report%steps == 3 .and. report%seconds < 30, 'a callback stops')
    call trainer%set_step_callback()
    call trainer%create(net, optimizer=gradus_adam_w, global_batch_size=batch)
    call trainer%resume(folder, found)
    call check(found .and. trainer%steps() == 3, 'a training goes on')
  end subroutine

  subroutine errors()
    type(gradus_network) :: net, copy
    type(gradus_data) :: data
    real(real32) :: five(3, 3, 3, 3, 3), scalar
    integer(int64) :: x
    integer :: stat
    character(200) :: text
    text = 'unchanged'
    x = net%input('x', 1, stat=stat, errmsg=text)
    call check(stat == gradus_invalid_handle .and. index(text, 'got null') > 0, 'a network before create')
    text = 'unchanged'
    call net%create(stat=stat, errmsg=text)
    call check(stat == gradus_ok .and. text == 'unchanged', 'no error')
    x = net%input('x', channels=1)
    x = net%conv2d(x, 1, [9], stat=stat, errmsg=text)
    call check(stat == gradus_shape_error .and. index(text, 'conv2d1') > 0, 'a kernel that is larger than the image')
    x = net%normalize(0_int64, [1.0_real64], [1.0_real64, 2.0_real64], stat=stat)
    call check(stat /= gradus_ok, 'means and deviations of different number')
    call net%output('y', 0_int64)
    call net%compile(4, stat=stat)
    call check(stat == gradus_configuration_error, 'no layers')
    x = net%dense(0_int64, 1, name='d')
    call net%free()
    call net%create()
    x = net%input('x', channels=1)
    x = net%dense(x, 1)
    call net%output('y', x)
    call net%compile(max_batch_size=2, inference=.true.)
    call net%predict('x', five, 'y', five, stat=stat, errmsg=text)
    call check(stat == gradus_ok, 'numbers of any rank')
    call net%predict('x', 1.0, 'y', scalar, stat=stat)
    call check(stat == gradus_ok, 'a scalar')
    call net%predict('x', five(:, :, :, :, 1), 'y', five(:, :, 1, 1, 1), stat=stat, errmsg=text)
    call check(stat == gradus_shape_error .and. index(text, 'as many samples') > 0, 'other numbers of samples')
    call data%create()
    call data%set('x', five(1:0, 1, 1, 1, 1))
    copy = net
    call net%free()
    call copy%predict('x', five, 'y', five, stat=stat, errmsg=text)
    call check(stat == gradus_invalid_handle .and. index(text, 'freed') > 0, 'a copy of what has ended')
  end subroutine
end module

program training
  use cases
  implicit none
  character(1000) :: path, folder
  if (command_argument_count() /= 2) error stop 'training WEIGHTS FOLDER'
  call get_command_argument(1, path)
  call get_command_argument(2, folder)
  call check(len(gradus_version()) > 4, 'the version')
  call same_bits(path)
  if (gradus_has_feature('double')) call double_and_classes()
  if (gradus_has_feature('double')) call options_of_zero()
  call calls_and_checkpoints(folder)
  call errors()
  call check(gradus_open_handles() == 0, 'all objects have ended')
  if (failed > 0) error stop 'failed checks'
  print '(a)', 'all checks passed'
end program

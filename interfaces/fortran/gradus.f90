! SPDX-License-Identifier: BSL-1.0
!
! The Fortran interface of gradus: networks that are built, trained and used inside a simulation. Fortran 2018, over
! gradus_c.h; docs/c_and_fortran.md is the guide.
!
! Arrays. An array is handed over as it is, in Fortran's order, without a copy, with any strides, in real32 or real64:
! a(x, y, channel, sample) is a set of images whose columns are x and whose rows are y. (In the words of other libraries
! that is NCHW, since their first axis varies slowest.) Axes of one element may be left out: a(feature, sample) for
! vectors, a(x, y, sample) for one channel, a(sample) for one number each. Classes are counted from 0.
!
! Errors. Every procedure has the optional arguments stat and errmsg, as ALLOCATE has: stat is 0 or another
! gradus_status, errmsg says what was expected, what came and what to do. Without stat an error is an ERROR STOP with
! that text.
!
! Objects end by themselves, where they leave their scope or are created again; free ends them sooner. What is made of an
! MPI communicator ends when MPI_Finalize begins. Variables of a main program live until it ends. A copy by assignment
! stands for the same object, which ends with the first of the copies: the others are recognized as freed.
module gradus
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use gradus_c_interface, c_version => gradus_version, c_has_feature => gradus_has_feature
  implicit none
  private

  public :: gradus_device, gradus_communicator, gradus_network, gradus_data, gradus_trainer, gradus_report
  public :: gradus_step_report, gradus_step_callback, gradus_schedule
  public :: gradus_version, gradus_has_feature
  public :: gradus_real32, gradus_real64
  public :: gradus_relu, gradus_leaky_relu, gradus_relu6, gradus_sigmoid, gradus_tanh, gradus_silu, gradus_gelu, &
            gradus_elu, gradus_softplus, gradus_softmax, gradus_log_softmax
  public :: gradus_valid, gradus_same, gradus_zeros, gradus_reflect, gradus_replicate, gradus_circular
  public :: gradus_max, gradus_average
  public :: gradus_batch_norm, gradus_group_norm, gradus_instance_norm, gradus_layer_norm
  public :: gradus_softmax_cross_entropy, gradus_mean_squared_error, gradus_mean_absolute_error, gradus_huber, &
            gradus_binary_cross_entropy
  public :: gradus_sgd, gradus_adam, gradus_adam_w
  public :: gradus_ok, gradus_invalid_argument, gradus_invalid_handle, gradus_shape_error, gradus_configuration_error, &
            gradus_format_error, gradus_device_error, gradus_communication_error, gradus_numeric_error, &
            gradus_interrupted, gradus_busy, gradus_not_built, gradus_out_of_memory, gradus_internal_error

  !> The types of elements of networks.
  integer(c_int), parameter :: gradus_real32 = gradus_float, gradus_real64 = gradus_double
  !> Paddings and kinds of pooling.
  integer(c_int), parameter :: gradus_valid = gradus_pad_valid, gradus_same = gradus_pad_same
  integer(c_int), parameter :: gradus_max = gradus_pool_max, gradus_average = gradus_pool_average

  integer, parameter :: most_axes = 15

  !> The version of the library, a text.
  interface gradus_version
    procedure :: version_text
  end interface

  !> Whether the C interface was compiled with 'mpi', 'onnx' or 'double'.
  interface gradus_has_feature
    procedure :: has_feature
  end interface

  abstract interface
    !> Called after each step. A result other than 0 ends the call of training after this step, on all ranks.
    function gradus_step_callback(report, context) bind(c) result(stops)
      import :: gradus_step_report, c_ptr, c_int
      type(gradus_step_report), intent(in) :: report
      type(c_ptr), value :: context
      integer(c_int) :: stops
    end function
    !> The learning rate of a step, counted from 0: the same on all ranks.
    function gradus_schedule(step, context) bind(c) result(rate)
      import :: c_ptr, c_int64_t, c_double
      integer(c_int64_t), value :: step
      type(c_ptr), value :: context
      real(c_double) :: rate
    end function
  end interface

  !> The processors that networks use.
  type :: gradus_device
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => device_create
    procedure :: threads => device_threads
    procedure :: free => device_free
    procedure :: c_handle => device_handle
    final :: device_end
  end type

  !> The ranks that train one network together.
  type :: gradus_communicator
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create_mpi => comm_create_mpi
    procedure :: rank => comm_rank
    procedure :: size => comm_size
    procedure :: set_time_limit => comm_set_time_limit
    procedure :: free => comm_free
    procedure :: c_handle => comm_handle
    final :: comm_end
  end type

  !> Layers and their weights. Functions that add a layer return its output, a number for the layers behind it.
  type :: gradus_network
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => network_create
    procedure :: input => network_input
    procedure :: dense => network_dense
    procedure :: conv2d => network_conv2d
    procedure :: conv_transpose2d => network_conv_transpose2d
    procedure :: pool2d => network_pool2d
    procedure :: global_average_pool2d => network_global_average_pool2d
    procedure :: norm => network_norm
    procedure :: activation => network_activation
    procedure :: dropout => network_dropout
    procedure :: flatten => network_flatten
    procedure :: reshape => network_reshape
    procedure :: add => network_add
    procedure :: multiply => network_multiply
    procedure :: concat => network_concat
    procedure :: upsample2d => network_upsample2d
    procedure :: crop2d => network_crop2d
    procedure :: pad2d => network_pad2d
    procedure :: normalize => network_normalize
    procedure :: read_onnx => network_read_onnx
    procedure :: output => network_output
    procedure :: loss => network_loss
    procedure :: compile => network_compile
    procedure :: value_shape => network_shape
    procedure :: summary => network_summary
    procedure :: parameters => network_parameters
    procedure :: parameter_name => network_parameter_name
    procedure :: parameter_size => network_parameter_size
    procedure, private :: get_real32 => network_get_real32
    procedure, private :: get_real64 => network_get_real64
    procedure, private :: set_real32 => network_set_real32
    procedure, private :: set_real64 => network_set_real64
    generic :: get_parameter => get_real32, get_real64
    generic :: set_parameter => set_real32, set_real64
    procedure, private :: predict_real32 => network_predict_real32
    procedure, private :: predict_real64 => network_predict_real64
    generic :: predict => predict_real32, predict_real64
    procedure :: save_weights => network_save_weights
    procedure :: load_weights => network_load_weights
    procedure :: write_onnx => network_write_onnx
    procedure :: free => network_free
    procedure :: c_handle => network_handle
    final :: network_end
  end type

  !> Named arrays of the program. They stay where they are: give them the attribute TARGET (or POINTER), and let them
  !> exist as long as the data are used. They may change between the calls that train.
  type :: gradus_data
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => data_create
    procedure, private :: set_real32 => data_set_real32
    procedure, private :: set_real64 => data_set_real64
    procedure, private :: set_int32 => data_set_int32
    procedure, private :: set_int64 => data_set_int64
    generic :: set => set_real32, set_real64, set_int32, set_int64
    procedure, private :: weights_real32 => data_weights_real32
    procedure, private :: weights_real64 => data_weights_real64
    generic :: set_weights => weights_real32, weights_real64
    procedure :: free => data_free
    procedure :: c_handle => data_handle
    final :: data_end
  end type

  !> A network that is trained.
  type :: gradus_trainer
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => trainer_create
    procedure :: set_learning_rate => trainer_set_learning_rate
    procedure :: set_schedule => trainer_set_schedule
    procedure :: set_step_callback => trainer_set_step_callback
    procedure :: steps => trainer_steps
    procedure :: step => trainer_step
    procedure :: train_steps => trainer_train_steps
    procedure :: train_for => trainer_train_for
    procedure :: train_epochs => trainer_train_epochs
    procedure :: evaluate => trainer_evaluate
    procedure :: set_checkpoints => trainer_set_checkpoints
    procedure :: resume => trainer_resume
    procedure :: save_weights => trainer_save_weights
    procedure :: free => trainer_free
    procedure :: c_handle => trainer_handle
    final :: trainer_end
  end type

contains


  function version_text() result(text)
    character(:), allocatable :: text
    text = text_of(c_version())
  end function

  function has_feature(name) result(has)
    character(*), intent(in) :: name
    logical :: has
    has = c_has_feature(name//c_null_char) /= 0
  end function

  ! ---- Texts, errors and options

  function text_of(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i, length
    call c_f_pointer(pointer, characters, [65536])
    length = 0
    do while (characters(length + 1) /= c_null_char)
      length = length + 1
    end do
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = characters(i)
    end do
  end function

  !> Ends a procedure: the status goes to stat, its text to errmsg; without stat an error ends the program.
  subroutine finish(status, stat, errmsg)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (present(stat)) stat = status
    if (status == gradus_ok) return
    if (present(errmsg)) errmsg = text_of(gradus_last_error())
    if (.not. present(stat)) error stop 'gradus: '//text_of(gradus_last_error())
  end subroutine

  !> A text that ends with a zero; not allocated, and so absent in C, where it is not present.
  subroutine c_text(given, text)
    character(*), intent(in), optional :: given
    character(:), allocatable, intent(out) :: text
    if (present(given)) text = trim(given)//c_null_char
  end subroutine

  pure function number(given, missing) result(value)
    integer, intent(in), optional :: given
    integer, intent(in) :: missing
    integer :: value
    value = missing
    if (present(given)) value = given
  end function

  pure function real_of(given) result(value)
    real(real64), intent(in), optional :: given
    real(real64) :: value
    value = 0
    if (present(given)) value = given
  end function

  !> As real_of, for an option whose default is not 0: C takes -0.0 as 0, and 0 as the default.
  pure function exactly(given) result(value)
    real(real64), intent(in), optional :: given
    real(real64) :: value
    value = 0
    if (.not. present(given)) return
    value = given
    if (abs(given) <= 0) value = sign(0.0_real64, -1.0_real64)
  end function

  pure function is_false(given) result(value)
    logical, intent(in), optional :: given
    integer(c_int32_t) :: value
    value = 0
    if (present(given)) value = merge(0, 1, given)
  end function

  pure function is_true(given) result(value)
    logical, intent(in), optional :: given
    integer(c_int32_t) :: value
    value = 0
    if (present(given)) value = merge(1, 0, given)
  end function

  pure subroutine pair(given, values)
    integer, intent(in), optional :: given(:)
    integer(c_int64_t), intent(inout) :: values(2)
    if (present(given)) then
      if (size(given) > 0) values = given(1)
      if (size(given) > 1) values(2) = given(2)
    end if
  end subroutine

  ! ---- Arrays: the address of the first element, and the distances of its neighbors

  pure function address(pointer) result(number_of)
    type(c_ptr), intent(in) :: pointer
    integer(c_intptr_t) :: number_of
    number_of = transfer(pointer, number_of)
  end function

  !> @param axes  extents in (:, 1), distances in elements in (:, 2); array points to them
  subroutine describe_real32(x, axes, array)
    real(real32), intent(in), target :: x(..)
    integer(c_int64_t), intent(out), target :: axes(most_axes, 2)
    type(gradus_array), intent(out) :: array
    integer(c_intptr_t) :: first
    axes = 1
    array%element = gradus_float
    array%order = gradus_fortran_order
    array%rank = max(1, rank(x))
    array%shape = c_loc(axes(1, 1))
    array%strides = c_loc(axes(1, 2))
    axes(1:rank(x), 1) = shape(x)
    if (size(x) == 0) return
    select rank (x)
    rank (0)
      array%data = c_loc(x)
    rank (1)
      array%data = c_loc(x(1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2))) - first)/4
    rank (2)
      array%data = c_loc(x(1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2))) - first)/4
    rank (3)
      array%data = c_loc(x(1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2))) - first)/4
    rank (4)
      array%data = c_loc(x(1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2))) - first)/4
    rank (5)
      array%data = c_loc(x(1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2))) - first)/4
    rank (6)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1))) - first)/4
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2))) - first)/4
    rank (7)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1, 1))) - first)/4
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2, 1))) - first)/4
      if (axes(7, 1) > 1) axes(7, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 1, 2))) - first)/4
    rank default
      array%rank = 0  ! is refused
    end select
  end subroutine

  !> @param axes  extents in (:, 1), distances in elements in (:, 2); array points to them
  subroutine describe_real64(x, axes, array)
    real(real64), intent(in), target :: x(..)
    integer(c_int64_t), intent(out), target :: axes(most_axes, 2)
    type(gradus_array), intent(out) :: array
    integer(c_intptr_t) :: first
    axes = 1
    array%element = gradus_double
    array%order = gradus_fortran_order
    array%rank = max(1, rank(x))
    array%shape = c_loc(axes(1, 1))
    array%strides = c_loc(axes(1, 2))
    axes(1:rank(x), 1) = shape(x)
    if (size(x) == 0) return
    select rank (x)
    rank (0)
      array%data = c_loc(x)
    rank (1)
      array%data = c_loc(x(1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2))) - first)/8
    rank (2)
      array%data = c_loc(x(1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2))) - first)/8
    rank (3)
      array%data = c_loc(x(1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2))) - first)/8
    rank (4)
      array%data = c_loc(x(1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2))) - first)/8
    rank (5)
      array%data = c_loc(x(1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2))) - first)/8
    rank (6)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1))) - first)/8
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2))) - first)/8
    rank (7)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1, 1))) - first)/8
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2, 1))) - first)/8
      if (axes(7, 1) > 1) axes(7, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 1, 2))) - first)/8
    rank default
      array%rank = 0  ! is refused
    end select
  end subroutine

  !> @param axes  extents in (:, 1), distances in elements in (:, 2); array points to them
  subroutine describe_int32(x, axes, array)
    integer(int32), intent(in), target :: x(..)
    integer(c_int64_t), intent(out), target :: axes(most_axes, 2)
    type(gradus_array), intent(out) :: array
    integer(c_intptr_t) :: first
    axes = 1
    array%element = gradus_int32
    array%order = gradus_fortran_order
    array%rank = max(1, rank(x))
    array%shape = c_loc(axes(1, 1))
    array%strides = c_loc(axes(1, 2))
    axes(1:rank(x), 1) = shape(x)
    if (size(x) == 0) return
    select rank (x)
    rank (0)
      array%data = c_loc(x)
    rank (1)
      array%data = c_loc(x(1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2))) - first)/4
    rank (2)
      array%data = c_loc(x(1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2))) - first)/4
    rank (3)
      array%data = c_loc(x(1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2))) - first)/4
    rank (4)
      array%data = c_loc(x(1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2))) - first)/4
    rank (5)
      array%data = c_loc(x(1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2))) - first)/4
    rank (6)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1))) - first)/4
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2))) - first)/4
    rank (7)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1, 1))) - first)/4
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1, 1))) - first)/4
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1, 1))) - first)/4
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1, 1))) - first)/4
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1, 1))) - first)/4
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2, 1))) - first)/4
      if (axes(7, 1) > 1) axes(7, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 1, 2))) - first)/4
    rank default
      array%rank = 0  ! is refused
    end select
  end subroutine

  !> @param axes  extents in (:, 1), distances in elements in (:, 2); array points to them
  subroutine describe_int64(x, axes, array)
    integer(int64), intent(in), target :: x(..)
    integer(c_int64_t), intent(out), target :: axes(most_axes, 2)
    type(gradus_array), intent(out) :: array
    integer(c_intptr_t) :: first
    axes = 1
    array%element = gradus_int64
    array%order = gradus_fortran_order
    array%rank = max(1, rank(x))
    array%shape = c_loc(axes(1, 1))
    array%strides = c_loc(axes(1, 2))
    axes(1:rank(x), 1) = shape(x)
    if (size(x) == 0) return
    select rank (x)
    rank (0)
      array%data = c_loc(x)
    rank (1)
      array%data = c_loc(x(1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2))) - first)/8
    rank (2)
      array%data = c_loc(x(1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2))) - first)/8
    rank (3)
      array%data = c_loc(x(1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2))) - first)/8
    rank (4)
      array%data = c_loc(x(1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2))) - first)/8
    rank (5)
      array%data = c_loc(x(1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2))) - first)/8
    rank (6)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1))) - first)/8
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2))) - first)/8
    rank (7)
      array%data = c_loc(x(1, 1, 1, 1, 1, 1, 1))
      first = address(array%data)
      if (axes(1, 1) > 1) axes(1, 2) = (address(c_loc(x(2, 1, 1, 1, 1, 1, 1))) - first)/8
      if (axes(2, 1) > 1) axes(2, 2) = (address(c_loc(x(1, 2, 1, 1, 1, 1, 1))) - first)/8
      if (axes(3, 1) > 1) axes(3, 2) = (address(c_loc(x(1, 1, 2, 1, 1, 1, 1))) - first)/8
      if (axes(4, 1) > 1) axes(4, 2) = (address(c_loc(x(1, 1, 1, 2, 1, 1, 1))) - first)/8
      if (axes(5, 1) > 1) axes(5, 2) = (address(c_loc(x(1, 1, 1, 1, 2, 1, 1))) - first)/8
      if (axes(6, 1) > 1) axes(6, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 2, 1))) - first)/8
      if (axes(7, 1) > 1) axes(7, 2) = (address(c_loc(x(1, 1, 1, 1, 1, 1, 2))) - first)/8
    rank default
      array%rank = 0  ! is refused
    end select
  end subroutine

  subroutine device_free(self)
    class(gradus_device), intent(inout) :: self
    integer(c_int) :: status
    if (c_associated(self%handle)) status = gradus_device_free(self%handle)  ! refused where a copy has ended it
    self%handle = c_null_ptr
  end subroutine

  subroutine device_end(self)
    type(gradus_device), intent(inout) :: self
    call device_free(self)
  end subroutine

  !> The handle of gradus_c.h.
  function device_handle(self) result(handle)
    class(gradus_device), intent(in) :: self
    type(c_ptr) :: handle
    handle = self%handle
  end function

  subroutine comm_free(self)
    class(gradus_communicator), intent(inout) :: self
    integer(c_int) :: status
    if (c_associated(self%handle)) status = gradus_comm_free(self%handle)  ! refused where a copy has ended it
    self%handle = c_null_ptr
  end subroutine

  subroutine comm_end(self)
    type(gradus_communicator), intent(inout) :: self
    call comm_free(self)
  end subroutine

  !> The handle of gradus_c.h.
  function comm_handle(self) result(handle)
    class(gradus_communicator), intent(in) :: self
    type(c_ptr) :: handle
    handle = self%handle
  end function

  subroutine network_free(self)
    class(gradus_network), intent(inout) :: self
    integer(c_int) :: status
    if (c_associated(self%handle)) status = gradus_network_free(self%handle)  ! refused where a copy has ended it
    self%handle = c_null_ptr
  end subroutine

  subroutine network_end(self)
    type(gradus_network), intent(inout) :: self
    call network_free(self)
  end subroutine

  !> The handle of gradus_c.h.
  function network_handle(self) result(handle)
    class(gradus_network), intent(in) :: self
    type(c_ptr) :: handle
    handle = self%handle
  end function

  subroutine data_free(self)
    class(gradus_data), intent(inout) :: self
    integer(c_int) :: status
    if (c_associated(self%handle)) status = gradus_data_free(self%handle)  ! refused where a copy has ended it
    self%handle = c_null_ptr
  end subroutine

  subroutine data_end(self)
    type(gradus_data), intent(inout) :: self
    call data_free(self)
  end subroutine

  !> The handle of gradus_c.h.
  function data_handle(self) result(handle)
    class(gradus_data), intent(in) :: self
    type(c_ptr) :: handle
    handle = self%handle
  end function

  subroutine trainer_free(self)
    class(gradus_trainer), intent(inout) :: self
    integer(c_int) :: status
    if (c_associated(self%handle)) status = gradus_trainer_free(self%handle)  ! refused where a copy has ended it
    self%handle = c_null_ptr
  end subroutine

  subroutine trainer_end(self)
    type(gradus_trainer), intent(inout) :: self
    call trainer_free(self)
  end subroutine

  !> The handle of gradus_c.h.
  function trainer_handle(self) result(handle)
    class(gradus_trainer), intent(in) :: self
    type(c_ptr) :: handle
    handle = self%handle
  end function

  ! ---- Devices and communicators

  !> @param threads  0: the processors of this process, divided by the ranks of the machine
  subroutine device_create(self, threads, flush_denormals, stat, errmsg)
    class(gradus_device), intent(inout) :: self
    integer, intent(in), optional :: threads
    logical, intent(in), optional :: flush_denormals
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(gradus_device_options) :: options
    call self%free()
    options%threads = number(threads, 0)
    options%flush_denormals = is_true(flush_denormals)
    call finish(gradus_device_create(options, self%handle), stat, errmsg)
  end subroutine

  function device_threads(self, stat, errmsg) result(threads)
    class(gradus_device), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: threads
    threads = 0
    call finish(gradus_device_threads(self%handle, threads), stat, errmsg)
  end function

  !> The ranks of an MPI communicator: an integer of `use mpi`, comm%mpi_val of mpi_f08.
  subroutine comm_create_mpi(self, comm, stat, errmsg)
    class(gradus_communicator), intent(inout) :: self
    integer, intent(in) :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%free()
    call finish(gradus_comm_create_mpi_fortran(int(comm, c_int), self%handle), stat, errmsg)
  end subroutine

  !> This rank, counted from 0.
  function comm_rank(self, stat, errmsg) result(rank)
    class(gradus_communicator), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: rank
    rank = 0
    call finish(gradus_comm_rank(self%handle, rank), stat, errmsg)
  end function

  function comm_size(self, stat, errmsg) result(ranks)
    class(gradus_communicator), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: ranks
    ranks = 0
    call finish(gradus_comm_size(self%handle, ranks), stat, errmsg)
  end function

  !> How long a rank waits for the others before it fails.
  subroutine comm_set_time_limit(self, milliseconds, stat, errmsg)
    class(gradus_communicator), intent(in) :: self
    integer, intent(in) :: milliseconds
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_comm_set_time_limit(self%handle, int(milliseconds, c_int64_t)), stat, errmsg)
  end subroutine

  ! ---- Networks: building

  !> @param element  gradus_real32 or gradus_real64
  !> @param device   without it: one of the network's own
  subroutine network_create(self, element, device, stat, errmsg)
    class(gradus_network), intent(inout) :: self
    integer, intent(in), optional :: element
    type(gradus_device), intent(in), optional :: device
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: on
    call self%free()
    on = c_null_ptr
    if (present(device)) on = device%handle
    call finish(gradus_network_create(on, int(number(element, gradus_real32), c_int32_t), self%handle), stat, errmsg)
  end subroutine

  !> The input: images a(columns, rows, channels), or vectors of channels.
  function network_input(self, name, channels, rows, columns, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(in) :: channels
    integer, intent(in), optional :: rows, columns
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    output = -1
    call finish(gradus_network_input(self%handle, trim(name)//c_null_char, int(channels, c_int64_t), &
                                     int(number(rows, 1), c_int64_t), int(number(columns, 1), c_int64_t), output), &
                stat, errmsg)
  end function

  !> A fully connected layer, of all elements of an example.
  function network_dense(self, input, out_features, bias, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: out_features
    logical, intent(in), optional :: bias
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    type(gradus_dense_options) :: options
    output = -1
    call c_text(name, text)
    options%out_features = out_features
    options%no_bias = is_false(bias)
    call finish(gradus_network_dense(self%handle, text, input, options, output), stat, errmsg)
  end function

  !> kernel, stride and dilation: [rows, columns], or one number for both. padding: gradus_valid or gradus_same, or pad:
  !> [top, bottom, left, right], or one number for all. padding_mode: gradus_zeros, gradus_circular, ...
  function network_conv2d(self, input, out_channels, kernel, stride, padding, pad, padding_mode, dilation, &
      groups, bias, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: out_channels
    integer, intent(in) :: kernel(:)
    integer, intent(in), optional :: stride(:), dilation(:), pad(:)
    integer, intent(in), optional :: groups, padding, padding_mode
    logical, intent(in), optional :: bias
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    type(gradus_conv2d_options) :: options
    output = -1
    call c_text(name, text)
    options%out_channels = out_channels
    call pair(kernel, options%kernel)
    call pair(stride, options%stride)
    call pair(dilation, options%dilation)
    options%groups = number(groups, 0)
    options%padding = number(padding, gradus_pad_valid)
    if (present(pad)) then
      options%padding = gradus_pad_explicit
      options%pad = pad(1)
      if (size(pad) == 4) options%pad = pad
    end if
    options%no_bias = is_false(bias)
    options%padding_mode = number(padding_mode, gradus_zeros)
    call finish(gradus_network_conv2d(self%handle, text, input, options, output), stat, errmsg)
  end function

  !> As conv2d; the padding is what is cut off the output.
  function network_conv_transpose2d(self, input, out_channels, kernel, stride, padding, pad, output_padding, dilation, &
      groups, bias, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: out_channels
    integer, intent(in) :: kernel(:)
    integer, intent(in), optional :: stride(:), dilation(:), pad(:)
    integer, intent(in), optional :: groups, padding
    logical, intent(in), optional :: bias
    integer, intent(in), optional :: output_padding(:)
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    type(gradus_conv2d_options) :: options
    output = -1
    call c_text(name, text)
    options%out_channels = out_channels
    call pair(kernel, options%kernel)
    call pair(stride, options%stride)
    call pair(dilation, options%dilation)
    options%groups = number(groups, 0)
    options%padding = number(padding, gradus_pad_valid)
    if (present(pad)) then
      options%padding = gradus_pad_explicit
      options%pad = pad(1)
      if (size(pad) == 4) options%pad = pad
    end if
    options%no_bias = is_false(bias)
    call pair(output_padding, options%output_padding)
    call finish(gradus_network_conv_transpose2d(self%handle, text, input, options, output), stat, errmsg)
  end function

  !> kind: gradus_max (without it) or gradus_average; kernel: [2] without it; stride: the kernel's without it.
  function network_pool2d(self, input, kind, kernel, stride, padding, pad, &
      ceil_mode, count_padding, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in), optional :: kind
    integer, intent(in), optional :: kernel(:), stride(:), pad(:)
    integer, intent(in), optional :: padding
    logical, intent(in), optional :: ceil_mode, count_padding
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    type(gradus_pool2d_options) :: options
    output = -1
    call c_text(name, text)
    options%kind = number(kind, gradus_pool_max)
    call pair(kernel, options%kernel)
    call pair(stride, options%stride)
    options%padding = number(padding, gradus_pad_valid)
    if (present(pad)) then
      options%padding = gradus_pad_explicit
      options%pad = pad(1)
      if (size(pad) == 4) options%pad = pad
    end if
    options%ceil_mode = is_true(ceil_mode)
    options%count_padding = is_true(count_padding)
    call finish(gradus_network_pool2d(self%handle, text, input, options, output), stat, errmsg)
  end function

  !> The mean of each channel.
  function network_global_average_pool2d(self, input, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_global_average_pool2d(self%handle, text, input, output), stat, errmsg)
  end function

  !> kind: gradus_batch_norm, gradus_group_norm, gradus_instance_norm or gradus_layer_norm.
  function network_norm(self, input, kind, groups, scale, shift, momentum, epsilon, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: kind
    integer, intent(in), optional :: groups
    logical, intent(in), optional :: scale, shift
    real(real64), intent(in), optional :: momentum, epsilon
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    type(gradus_norm_options) :: options
    output = -1
    call c_text(name, text)
    options%kind = kind
    options%groups = number(groups, 0)
    options%no_scale = is_false(scale)
    options%no_shift = is_false(shift)
    options%momentum = exactly(momentum)
    options%epsilon = exactly(epsilon)
    call finish(gradus_network_norm(self%handle, text, input, options, output), stat, errmsg)
  end function

  !> kind: gradus_relu, gradus_tanh, ...; parameter: of gradus_leaky_relu and gradus_elu.
  function network_activation(self, input, kind, parameter, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: kind
    real(real64), intent(in), optional :: parameter
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_activation(self%handle, text, input, int(kind, c_int32_t), exactly(parameter), output), stat, errmsg)
  end function

  !> rate: the probability that an element becomes 0 in training.
  function network_dropout(self, input, rate, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    real(real64), intent(in) :: rate
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_dropout(self%handle, text, input, rate, output), stat, errmsg)
  end function

  !> The images as vectors.
  function network_flatten(self, input, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_flatten(self%handle, text, input, output), stat, errmsg)
  end function

  !> The same elements as another image; one extent may be -1.
  function network_reshape(self, input, channels, rows, columns, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: channels, rows, columns
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    integer(c_int) :: status
    output = -1
    call c_text(name, text)
    status = gradus_network_reshape(self%handle, text, input, int(channels, c_int64_t), int(rows, c_int64_t), &
                                    int(columns, c_int64_t), output)
    call finish(status, stat, errmsg)
  end function

  !> The sum of two values of one shape.
  function network_add(self, input, right, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer(c_int64_t), intent(in) :: right
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_add(self%handle, text, input, right, output), stat, errmsg)
  end function

  !> The product of two values of one shape, or with one number for each channel.
  function network_multiply(self, input, right, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer(c_int64_t), intent(in) :: right
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_multiply(self%handle, text, input, right, output), stat, errmsg)
  end function

  !> The channels of several values behind each other.
  function network_concat(self, inputs, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: inputs(:)
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    output = -1
    call c_text(name, text)
    call finish(gradus_network_concat(self%handle, text, inputs, size(inputs, kind=c_int32_t), output), stat, errmsg)
  end function

  !> rows and columns are multiplied.
  function network_upsample2d(self, input, rows, columns, bilinear, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: rows, columns
    logical, intent(in), optional :: bilinear
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    integer(c_int) :: status
    output = -1
    call c_text(name, text)
    status = gradus_network_upsample2d(self%handle, text, input, int(rows, c_int64_t), int(columns, c_int64_t), &
                                       is_true(bilinear), output)
    call finish(status, stat, errmsg)
  end function

  !> top and left are counted from 0.
  function network_crop2d(self, input, top, left, rows, columns, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: top, left, rows, columns
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    integer(c_int) :: status
    output = -1
    call c_text(name, text)
    status = gradus_network_crop2d(self%handle, text, input, int(top, c_int64_t), int(left, c_int64_t), &
                                   int(rows, c_int64_t), int(columns, c_int64_t), output)
    call finish(status, stat, errmsg)
  end function

  !> pad: [top, bottom, left, right]; mode: gradus_zeros, ..., gradus_circular.
  function network_pad2d(self, input, pad, mode, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    integer, intent(in) :: pad(4)
    integer, intent(in), optional :: mode
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    integer(c_int) :: status
    output = -1
    call c_text(name, text)
    status = gradus_network_pad2d(self%handle, text, input, int(pad, c_int64_t), int(number(mode, gradus_zeros), c_int32_t), &
                                  output)
    call finish(status, stat, errmsg)
  end function

  !> (x - mean)/deviation, with fixed numbers of each channel.
  function network_normalize(self, input, mean, deviation, name, stat, errmsg) result(output)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: input
    real(real64), intent(in) :: mean(:), deviation(:)
    character(*), intent(in), optional :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: output
    character(:), allocatable :: text
    integer(c_int) :: status
    output = -1
    call c_text(name, text)
    if (size(mean) /= size(deviation)) then
      status = gradus_network_normalize(self%handle, text, input, count=-1_c_int64_t, output=output)
    else
      status = gradus_network_normalize(self%handle, text, input, mean, deviation, size(mean, kind=c_int64_t), output)
    end if
    call finish(status, stat, errmsg)
  end function

  !> The layers of an ONNX file; it makes the input and the output.
  subroutine network_read_onnx(self, path, input, output, rows, columns, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: path, input, output
    integer, intent(in), optional :: rows, columns
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_read_onnx(self%handle, trim(path)//c_null_char, trim(input)//c_null_char, &
                                      trim(output)//c_null_char, int(number(rows, 0), c_int64_t), &
                                      int(number(columns, 0), c_int64_t))
    call finish(status, stat, errmsg)
  end subroutine

  !> Names the output of the network, the last layer.
  subroutine network_output(self, name, value, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_network_output(self%handle, trim(name)//c_null_char, value), stat, errmsg)
  end subroutine

  !> kind: gradus_mean_squared_error, ...; parameter: label smoothing of gradus_softmax_cross_entropy, delta of gradus_huber.
  subroutine network_loss(self, output, kind, parameter, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: output
    integer, intent(in) :: kind
    real(real64), intent(in), optional :: parameter
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_loss(self%handle, trim(output)//c_null_char, int(kind, c_int32_t), exactly(parameter))
    call finish(status, stat, errmsg)
  end subroutine

  !> Ends the building. max_batch_size: the largest batch of this rank; seed: of the initial weights.
  subroutine network_compile(self, max_batch_size, seed, micro_batch_size, inference, recompute, stat, errmsg)
    class(gradus_network), intent(in) :: self
    integer, intent(in) :: max_batch_size
    integer, intent(in), optional :: seed, micro_batch_size
    logical, intent(in), optional :: inference, recompute
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(gradus_compile_options) :: options
    options%max_batch_size = max_batch_size
    options%seed = number(seed, 0)
    options%micro_batch_size = number(micro_batch_size, 0)
    options%inference = is_true(inference)
    options%recompute = is_true(recompute)
    call finish(gradus_network_compile(self%handle, options), stat, errmsg)
  end subroutine

  ! ---- Networks: using

  !> The shape of one example of a value: [columns, rows, channels], as of an array.
  function network_shape(self, value, stat, errmsg) result(extents)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: extents(3)
    extents = 0
    call finish(gradus_network_shape(self%handle, value, extents(3), extents(2), extents(1)), stat, errmsg)
  end function

  !> A table of the layers.
  function network_summary(self, stat, errmsg) result(text)
    class(gradus_network), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(:), allocatable :: text
    character(kind=c_char) :: none(1)
    integer(c_size_t) :: needed
    integer(c_int) :: status
    needed = 1
    status = gradus_network_summary(self%handle, none, 0_c_size_t, needed)
    allocate (character(needed) :: text)
    if (status == gradus_ok) status = gradus_network_summary(self%handle, text, needed, needed)
    text = text(:max(0, int(needed) - 1))
    call finish(status, stat, errmsg)
  end function

  !> The number of parameters; elements: of all of them.
  function network_parameters(self, elements, stat, errmsg) result(parameters)
    class(gradus_network), intent(in) :: self
    integer(c_int64_t), intent(out), optional :: elements
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: parameters, all
    parameters = 0
    all = 0
    call finish(gradus_network_parameter_count(self%handle, parameters, all), stat, errmsg)
    if (present(elements)) elements = all
  end function

  !> The name of parameter i, from 1.
  function network_parameter_name(self, i, stat, errmsg) result(name)
    class(gradus_network), intent(in) :: self
    integer, intent(in) :: i
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(:), allocatable :: name
    type(c_ptr) :: text
    integer(c_int64_t) :: elements
    integer(c_int) :: status
    text = c_null_ptr
    elements = 0
    status = gradus_network_parameter(self%handle, int(i - 1, c_int64_t), text, elements)
    name = ''
    if (status == gradus_ok) name = text_of(text)
    call finish(status, stat, errmsg)
  end function

  !> The elements of parameter i, from 1.
  function network_parameter_size(self, i, stat, errmsg) result(elements)
    class(gradus_network), intent(in) :: self
    integer, intent(in) :: i
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: elements
    type(c_ptr) :: text
    text = c_null_ptr
    elements = 0
    call finish(gradus_network_parameter(self%handle, int(i - 1, c_int64_t), text, elements), stat, errmsg)
  end function

  !> Copies a parameter, in PyTorch's order. The kind is that of the network.
  subroutine network_get_real32(self, name, values, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    real(real32), intent(out), contiguous, target :: values(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_get_parameter(self%handle, trim(name)//c_null_char, c_loc(values), size(values, kind=c_int64_t))
    call finish(status, stat, errmsg)
  end subroutine

  subroutine network_set_real32(self, name, values, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    real(real32), intent(in), contiguous, target :: values(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_set_parameter(self%handle, trim(name)//c_null_char, c_loc(values), size(values, kind=c_int64_t))
    call finish(status, stat, errmsg)
  end subroutine

  !> Computes the output of any number of samples and writes it into outputs. Allocates nothing.
  subroutine network_predict_real32(self, input, inputs, output, outputs, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: input, output
    real(real32), intent(in), target :: inputs(..)
    real(real32), intent(inout), target :: outputs(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2), axes_of_outputs(most_axes, 2)
    type(gradus_array) :: from, to
    integer(c_int) :: status
    call describe_real32(inputs, axes, from)
    call describe_real32(outputs, axes_of_outputs, to)
    status = gradus_network_predict(self%handle, trim(input)//c_null_char, from, trim(output)//c_null_char, to)
    call finish(status, stat, errmsg)
  end subroutine

  !> Copies a parameter, in PyTorch's order. The kind is that of the network.
  subroutine network_get_real64(self, name, values, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    real(real64), intent(out), contiguous, target :: values(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_get_parameter(self%handle, trim(name)//c_null_char, c_loc(values), size(values, kind=c_int64_t))
    call finish(status, stat, errmsg)
  end subroutine

  subroutine network_set_real64(self, name, values, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: name
    real(real64), intent(in), contiguous, target :: values(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_set_parameter(self%handle, trim(name)//c_null_char, c_loc(values), size(values, kind=c_int64_t))
    call finish(status, stat, errmsg)
  end subroutine

  !> Computes the output of any number of samples and writes it into outputs. Allocates nothing.
  subroutine network_predict_real64(self, input, inputs, output, outputs, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: input, output
    real(real64), intent(in), target :: inputs(..)
    real(real64), intent(inout), target :: outputs(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2), axes_of_outputs(most_axes, 2)
    type(gradus_array) :: from, to
    integer(c_int) :: status
    call describe_real64(inputs, axes, from)
    call describe_real64(outputs, axes_of_outputs, to)
    status = gradus_network_predict(self%handle, trim(input)//c_null_char, from, trim(output)//c_null_char, to)
    call finish(status, stat, errmsg)
  end subroutine

  !> The weights as a file (safetensors).
  subroutine network_save_weights(self, path, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_network_save_weights(self%handle, trim(path)//c_null_char), stat, errmsg)
  end subroutine

  !> strict: .false. loads what fits.
  subroutine network_load_weights(self, path, strict, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: path
    logical, intent(in), optional :: strict
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: status
    status = gradus_network_load_weights(self%handle, trim(path)//c_null_char, 1 - is_false(strict))
    call finish(status, stat, errmsg)
  end subroutine

  subroutine network_write_onnx(self, path, stat, errmsg)
    class(gradus_network), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_network_write_onnx(self%handle, trim(path)//c_null_char), stat, errmsg)
  end subroutine

  ! ---- Data

  subroutine data_create(self, stat, errmsg)
    class(gradus_data), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%free()
    call finish(gradus_data_create(self%handle), stat, errmsg)
  end subroutine

  !> The samples of an input, or the targets of an output, by its name.
  subroutine data_set_real32(self, name, values, stat, errmsg)
    class(gradus_data), intent(in) :: self
    character(*), intent(in) :: name
    real(real32), intent(in), target :: values(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_real32(values, axes, array)
    call finish(gradus_data_set(self%handle, trim(name)//c_null_char, array), stat, errmsg)
  end subroutine

  !> The samples of an input, or the targets of an output, by its name.
  subroutine data_set_real64(self, name, values, stat, errmsg)
    class(gradus_data), intent(in) :: self
    character(*), intent(in) :: name
    real(real64), intent(in), target :: values(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_real64(values, axes, array)
    call finish(gradus_data_set(self%handle, trim(name)//c_null_char, array), stat, errmsg)
  end subroutine

  !> The samples of an input, or the targets of an output, by its name.
  subroutine data_set_int32(self, name, values, stat, errmsg)
    class(gradus_data), intent(in) :: self
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: values(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_int32(values, axes, array)
    call finish(gradus_data_set(self%handle, trim(name)//c_null_char, array), stat, errmsg)
  end subroutine

  !> The samples of an input, or the targets of an output, by its name.
  subroutine data_set_int64(self, name, values, stat, errmsg)
    class(gradus_data), intent(in) :: self
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: values(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_int64(values, axes, array)
    call finish(gradus_data_set(self%handle, trim(name)//c_null_char, array), stat, errmsg)
  end subroutine

  !> A factor of each sample's loss.
  subroutine data_weights_real32(self, weights, stat, errmsg)
    class(gradus_data), intent(in) :: self
    real(real32), intent(in), target :: weights(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_real32(weights, axes, array)
    call finish(gradus_data_set_weights(self%handle, array), stat, errmsg)
  end subroutine

  !> A factor of each sample's loss.
  subroutine data_weights_real64(self, weights, stat, errmsg)
    class(gradus_data), intent(in) :: self
    real(real64), intent(in), target :: weights(..)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t), target :: axes(most_axes, 2)
    type(gradus_array) :: array
    call describe_real64(weights, axes, array)
    call finish(gradus_data_set_weights(self%handle, array), stat, errmsg)
  end subroutine

  ! ---- Training

  !> optimizer: gradus_sgd (without it), gradus_adam or gradus_adam_w. comm: all its ranks train together. The other
  !> arguments are those of gradus_trainer_options in gradus_c.h; one that is left out has its default, and 0.0 is 0.
  subroutine trainer_create(self, network, optimizer, learning_rate, momentum, nesterov, weight_decay, beta1, beta2, &
      epsilon, amsgrad, clip_norm, global_batch_size, seed, shuffle, comm, stat, errmsg)
    class(gradus_trainer), intent(inout) :: self
    type(gradus_network), intent(in) :: network
    integer, intent(in), optional :: optimizer, global_batch_size, seed
    real(real64), intent(in), optional :: learning_rate, momentum, weight_decay, beta1, beta2, epsilon, clip_norm
    logical, intent(in), optional :: nesterov, amsgrad, shuffle
    type(gradus_communicator), intent(in), optional :: comm
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(gradus_trainer_options) :: options
    type(c_ptr) :: ranks
    call self%free()
    options%optimizer = number(optimizer, gradus_sgd)
    options%learning_rate = exactly(learning_rate)
    options%momentum = real_of(momentum)
    options%nesterov = is_true(nesterov)
    options%weight_decay = real_of(weight_decay)
    options%beta1 = exactly(beta1)
    options%beta2 = exactly(beta2)
    options%epsilon = exactly(epsilon)
    options%amsgrad = is_true(amsgrad)
    options%clip_norm = real_of(clip_norm)
    options%global_batch_size = number(global_batch_size, 0)
    options%seed = number(seed, 0)
    options%no_shuffle = is_false(shuffle)
    ranks = c_null_ptr
    if (present(comm)) ranks = comm%handle
    call finish(gradus_trainer_create(network%handle, options, ranks, self%handle), stat, errmsg)
  end subroutine

  subroutine trainer_set_learning_rate(self, learning_rate, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    real(real64), intent(in) :: learning_rate
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_set_learning_rate(self%handle, learning_rate), stat, errmsg)
  end subroutine

  !> context: any address that the schedule gets, as c_loc(variable).
  subroutine trainer_set_schedule(self, schedule, context, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    procedure(gradus_schedule) :: schedule
    type(c_ptr), intent(in), optional :: context
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: given
    given = c_null_ptr
    if (present(context)) given = context
    call finish(gradus_trainer_set_schedule(self%handle, c_funloc(schedule), given), stat, errmsg)
  end subroutine

  !> On all ranks or on none. Without callback: none any more.
  subroutine trainer_set_step_callback(self, callback, context, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    procedure(gradus_step_callback), optional :: callback
    type(c_ptr), intent(in), optional :: context
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: given
    type(c_funptr) :: function_of
    given = c_null_ptr
    if (present(context)) given = context
    function_of = c_null_funptr
    if (present(callback)) function_of = c_funloc(callback)
    call finish(gradus_trainer_set_step_callback(self%handle, function_of, given), stat, errmsg)
  end subroutine

  !> Steps since the training began.
  function trainer_steps(self, stat, errmsg) result(steps)
    class(gradus_trainer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: steps
    steps = 0
    call finish(gradus_trainer_steps(self%handle, steps), stat, errmsg)
  end function

  !> One update by all samples of data, which are this rank's own.
  subroutine trainer_step(self, data, report, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    type(gradus_data), intent(in) :: data
    type(gradus_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_step(self%handle, data%handle, report), stat, errmsg)
  end subroutine

  !> Updates on batches drawn from data that all ranks have alike.
  subroutine trainer_train_steps(self, data, steps, report, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    type(gradus_data), intent(in) :: data
    integer, intent(in) :: steps
    type(gradus_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_train_steps(self%handle, data%handle, int(steps, c_int64_t), report), stat, errmsg)
  end subroutine

  !> Updates until the time is over.
  subroutine trainer_train_for(self, data, milliseconds, report, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    type(gradus_data), intent(in) :: data
    real(real64), intent(in) :: milliseconds
    type(gradus_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_train_for(self%handle, data%handle, milliseconds, report), stat, errmsg)
  end subroutine

  !> The steps of some passes over the data.
  subroutine trainer_train_epochs(self, data, epochs, report, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    type(gradus_data), intent(in) :: data
    integer, intent(in) :: epochs
    type(gradus_report), intent(inout), optional :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_train_epochs(self%handle, data%handle, int(epochs, c_int64_t), report), stat, errmsg)
  end subroutine

  !> Loss and accuracy over data that all ranks have alike.
  subroutine trainer_evaluate(self, data, report, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    type(gradus_data), intent(in) :: data
    type(gradus_report), intent(inout) :: report
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_evaluate(self%handle, data%handle, report), stat, errmsg)
  end subroutine

  !> From now on the calls that train write checkpoints into a folder.
  subroutine trainer_set_checkpoints(self, folder, every, keep, signals, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    character(*), intent(in) :: folder
    integer, intent(in), optional :: every, keep
    logical, intent(in), optional :: signals
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(gradus_checkpoint_options) :: options
    options%every = number(every, 0)
    options%keep = number(keep, 0)
    options%signals = is_true(signals)
    call finish(gradus_trainer_set_checkpoints(self%handle, trim(folder)//c_null_char, options), stat, errmsg)
  end subroutine

  !> Goes on from the newest checkpoint of a folder. found: whether it has one.
  subroutine trainer_resume(self, folder, found, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    character(*), intent(in) :: folder
    logical, intent(out), optional :: found
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: has
    has = 0
    call finish(gradus_trainer_resume(self%handle, trim(folder)//c_null_char, has), stat, errmsg)
    if (present(found)) found = has /= 0
  end subroutine

  !> The weights as a file; called by all ranks, rank 0 writes.
  subroutine trainer_save_weights(self, path, stat, errmsg)
    class(gradus_trainer), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(gradus_trainer_save_weights(self%handle, trim(path)//c_null_char), stat, errmsg)
  end subroutine
end module

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
! Objects end by themselves, where they leave their scope or are created again; free ends them sooner. A copy by
! assignment shares the object.
module gradus
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use gradus_c_interface
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
  integer(c_int32_t), parameter :: gradus_real32 = 1, gradus_real64 = 2

  !> What a call of training or evaluation has done, over all ranks.
  type, bind(c) :: gradus_report
    integer(c_int64_t) :: steps = 0
    integer(c_int64_t) :: examples = 0
    real(c_double) :: loss = 0      !< mean over the examples, as the weights changed
    real(c_double) :: accuracy = 0  !< share of right classes; 0 without classes
    real(c_double) :: seconds = 0
  end type

  !> A step that has been done, for callbacks.
  type, bind(c) :: gradus_step_report
    integer(c_int64_t) :: step = 0             !< from 0, over the whole training
    integer(c_int64_t) :: global_examples = 0  !< over all ranks
    integer(c_int64_t) :: local_examples = 0   !< of this rank
    real(c_double) :: local_loss = 0           !< mean over local_examples
    real(c_double) :: learning_rate = 0
  end type

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

  !> A handle that objects share: the last one ends it.
  type :: shared_handle
    type(c_ptr) :: handle = c_null_ptr
    integer :: kind = 0
    integer :: owners = 0
  end type

  type :: gradus_object
    private
    type(shared_handle), pointer :: shared => null()
  contains
    procedure, private :: share
    generic :: assignment(=) => share
    procedure :: free
    procedure :: c_handle
    final :: end_object
  end type

  !> The processors that networks use.
  type, extends(gradus_object) :: gradus_device
  contains
    procedure :: create => device_create
    procedure :: threads => device_threads
  end type

  !> The ranks that train one network together.
  type, extends(gradus_object) :: gradus_communicator
  contains
    procedure :: create_mpi => comm_create_mpi
    procedure :: rank => comm_rank
    procedure :: size => comm_size
    procedure :: set_time_limit => comm_set_time_limit
  end type

  !> Layers and their weights. Functions that add a layer return its output, a number for the layers behind it.
  type, extends(gradus_object) :: gradus_network
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
  end type

  !> Named arrays of the program. They stay where they are: give them the attribute TARGET (or POINTER), and let them
  !> exist as long as the data are used. They may change between the calls that train.
  type, extends(gradus_object) :: gradus_data
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
  end type

  !> A network that is trained.
  type, extends(gradus_object) :: gradus_trainer
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
  end type

contains


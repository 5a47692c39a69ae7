! SPDX-License-Identifier: BSL-1.0
!
! The functions, structures and constants of gradus_c.h for Fortran. Written by make_c_interface.py from the header: change
! that, and run the script. Programs use the module gradus.
module gradus_c_interface
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter :: gradus_ok = 0
  integer(c_int), parameter :: gradus_invalid_argument = 1
  integer(c_int), parameter :: gradus_invalid_handle = 2
  integer(c_int), parameter :: gradus_shape_error = 3
  integer(c_int), parameter :: gradus_configuration_error = 4
  integer(c_int), parameter :: gradus_format_error = 5
  integer(c_int), parameter :: gradus_device_error = 6
  integer(c_int), parameter :: gradus_communication_error = 7
  integer(c_int), parameter :: gradus_numeric_error = 8
  integer(c_int), parameter :: gradus_interrupted = 9
  integer(c_int), parameter :: gradus_busy = 10
  integer(c_int), parameter :: gradus_not_built = 11
  integer(c_int), parameter :: gradus_out_of_memory = 12
  integer(c_int), parameter :: gradus_internal_error = 13
  integer(c_int), parameter :: gradus_float = 1
  integer(c_int), parameter :: gradus_double = 2
  integer(c_int), parameter :: gradus_int32 = 3
  integer(c_int), parameter :: gradus_int64 = 4
  integer(c_int), parameter :: gradus_c_order = 0
  integer(c_int), parameter :: gradus_fortran_order = 1
  integer(c_int), parameter :: gradus_pad_valid = 0
  integer(c_int), parameter :: gradus_pad_same = 1
  integer(c_int), parameter :: gradus_pad_explicit = 2
  integer(c_int), parameter :: gradus_zeros = 0
  integer(c_int), parameter :: gradus_reflect = 1
  integer(c_int), parameter :: gradus_replicate = 2
  integer(c_int), parameter :: gradus_circular = 3
  integer(c_int), parameter :: gradus_pool_max = 1
  integer(c_int), parameter :: gradus_pool_average = 2
  integer(c_int), parameter :: gradus_batch_norm = 1
  integer(c_int), parameter :: gradus_group_norm = 2
  integer(c_int), parameter :: gradus_instance_norm = 3
  integer(c_int), parameter :: gradus_layer_norm = 4
  integer(c_int), parameter :: gradus_relu = 1
  integer(c_int), parameter :: gradus_leaky_relu = 2
  integer(c_int), parameter :: gradus_relu6 = 3
  integer(c_int), parameter :: gradus_sigmoid = 4
  integer(c_int), parameter :: gradus_tanh = 5
  integer(c_int), parameter :: gradus_silu = 6
  integer(c_int), parameter :: gradus_gelu = 7
  integer(c_int), parameter :: gradus_elu = 8
  integer(c_int), parameter :: gradus_softplus = 9
  integer(c_int), parameter :: gradus_softmax = 10
  integer(c_int), parameter :: gradus_log_softmax = 11
  integer(c_int), parameter :: gradus_softmax_cross_entropy = 1
  integer(c_int), parameter :: gradus_mean_squared_error = 2
  integer(c_int), parameter :: gradus_mean_absolute_error = 3
  integer(c_int), parameter :: gradus_huber = 4
  integer(c_int), parameter :: gradus_binary_cross_entropy = 5
  integer(c_int), parameter :: gradus_sgd = 0
  integer(c_int), parameter :: gradus_adam = 1
  integer(c_int), parameter :: gradus_adam_w = 2

  type, bind(c) :: gradus_array
    type(c_ptr) :: data = c_null_ptr
    integer(c_int32_t) :: element = 0
    integer(c_int32_t) :: order = 0
    integer(c_int32_t) :: rank = 0
    integer(c_int32_t) :: reserved = 0
    type(c_ptr) :: shape = c_null_ptr
    type(c_ptr) :: strides = c_null_ptr
  end type
  type, bind(c) :: gradus_device_options
    integer(c_int32_t) :: threads = 0
    integer(c_int32_t) :: flush_denormals = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_dense_options
    integer(c_int64_t) :: out_features = 0
    integer(c_int32_t) :: no_bias = 0
    integer(c_int32_t) :: reserved_int = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_conv2d_options
    integer(c_int64_t) :: out_channels = 0
    integer(c_int64_t) :: kernel(2) = 0
    integer(c_int64_t) :: stride(2) = 0
    integer(c_int64_t) :: dilation(2) = 0
    integer(c_int64_t) :: groups = 0
    integer(c_int32_t) :: padding = 0
    integer(c_int32_t) :: padding_mode = 0
    integer(c_int64_t) :: pad(4) = 0
    integer(c_int32_t) :: no_bias = 0
    integer(c_int32_t) :: reserved_int = 0
    integer(c_int64_t) :: output_padding(2) = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_pool2d_options
    integer(c_int32_t) :: kind = 0
    integer(c_int32_t) :: padding = 0
    integer(c_int64_t) :: kernel(2) = 0
    integer(c_int64_t) :: stride(2) = 0
    integer(c_int64_t) :: pad(4) = 0
    integer(c_int32_t) :: ceil_mode = 0
    integer(c_int32_t) :: count_padding = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_norm_options
    integer(c_int32_t) :: kind = 0
    integer(c_int32_t) :: no_scale = 0
    integer(c_int32_t) :: no_shift = 0
    integer(c_int32_t) :: reserved_int = 0
    integer(c_int64_t) :: groups = 0
    real(c_double) :: momentum = 0
    real(c_double) :: epsilon = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_compile_options
    integer(c_int64_t) :: max_batch_size = 0
    integer(c_int64_t) :: seed = 0
    integer(c_int64_t) :: micro_batch_size = 0
    integer(c_int32_t) :: inference = 0
    integer(c_int32_t) :: recompute = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_trainer_options
    integer(c_int32_t) :: optimizer = 0
    integer(c_int32_t) :: nesterov = 0
    real(c_double) :: learning_rate = 0
    real(c_double) :: momentum = 0
    real(c_double) :: weight_decay = 0
    real(c_double) :: beta1 = 0
    real(c_double) :: beta2 = 0
    real(c_double) :: epsilon = 0
    real(c_double) :: clip_norm = 0
    integer(c_int64_t) :: global_batch_size = 0
    integer(c_int64_t) :: seed = 0
    integer(c_int32_t) :: no_shuffle = 0
    integer(c_int32_t) :: amsgrad = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type
  type, bind(c) :: gradus_step_report
    integer(c_int64_t) :: step = 0
    integer(c_int64_t) :: global_examples = 0
    integer(c_int64_t) :: local_examples = 0
    real(c_double) :: local_loss = 0
    real(c_double) :: learning_rate = 0
  end type
  type, bind(c) :: gradus_report
    integer(c_int64_t) :: steps = 0
    integer(c_int64_t) :: examples = 0
    real(c_double) :: loss = 0
    real(c_double) :: accuracy = 0
    real(c_double) :: seconds = 0
  end type
  type, bind(c) :: gradus_checkpoint_options
    integer(c_int64_t) :: every = 0
    integer(c_int32_t) :: keep = 0
    integer(c_int32_t) :: signals = 0
    integer(c_int64_t) :: reserved(4) = 0
  end type

  interface
    function gradus_abi_version() bind(c, name='gradus_abi_version') result(answer)
      import
      integer(c_int) :: answer
    end function
    function gradus_version() bind(c, name='gradus_version') result(answer)
      import
      type(c_ptr) :: answer
    end function
    function gradus_last_error() bind(c, name='gradus_last_error') result(answer)
      import
      type(c_ptr) :: answer
    end function
    function gradus_status_name(status) bind(c, name='gradus_status_name') result(answer)
      import
      integer(c_int), value :: status
      type(c_ptr) :: answer
    end function
    function gradus_has_feature(name) bind(c, name='gradus_has_feature') result(answer)
      import
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int) :: answer
    end function
    function gradus_open_handles() bind(c, name='gradus_open_handles') result(answer)
      import
      integer(c_int64_t) :: answer
    end function
    function gradus_device_create(options, device) bind(c, name='gradus_device_create') result(answer)
      import
      type(gradus_device_options), intent(in), optional :: options
      type(c_ptr), intent(inout) :: device
      integer(c_int) :: answer
    end function
    function gradus_device_free(device) bind(c, name='gradus_device_free') result(answer)
      import
      type(c_ptr), value :: device
      integer(c_int) :: answer
    end function
    function gradus_device_threads(device, threads) bind(c, name='gradus_device_threads') result(answer)
      import
      type(c_ptr), value :: device
      integer(c_int32_t), intent(inout), optional :: threads
      integer(c_int) :: answer
    end function
    function gradus_comm_create_self(comm) bind(c, name='gradus_comm_create_self') result(answer)
      import
      type(c_ptr), intent(inout) :: comm
      integer(c_int) :: answer
    end function
    function gradus_comm_create_mpi_fortran(fortran_handle, comm&
        ) bind(c, name='gradus_comm_create_mpi_fortran') result(answer)
      import
      integer(c_int), value :: fortran_handle
      type(c_ptr), intent(inout) :: comm
      integer(c_int) :: answer
    end function
    function gradus_comm_free(comm) bind(c, name='gradus_comm_free') result(answer)
      import
      type(c_ptr), value :: comm
      integer(c_int) :: answer
    end function
    function gradus_comm_rank(comm, rank) bind(c, name='gradus_comm_rank') result(answer)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t), intent(inout), optional :: rank
      integer(c_int) :: answer
    end function
    function gradus_comm_size(comm, size) bind(c, name='gradus_comm_size') result(answer)
      import
      type(c_ptr), value :: comm
      integer(c_int32_t), intent(inout), optional :: size
      integer(c_int) :: answer
    end function
    function gradus_comm_set_time_limit(comm, milliseconds) bind(c, name='gradus_comm_set_time_limit') result(answer)
      import
      type(c_ptr), value :: comm
      integer(c_int64_t), value :: milliseconds
      integer(c_int) :: answer
    end function
    function gradus_network_create(device, element, network) bind(c, name='gradus_network_create') result(answer)
      import
      type(c_ptr), value :: device
      integer(c_int32_t), value :: element
      type(c_ptr), intent(inout) :: network
      integer(c_int) :: answer
    end function
    function gradus_network_free(network) bind(c, name='gradus_network_free') result(answer)
      import
      type(c_ptr), value :: network
      integer(c_int) :: answer
    end function
    function gradus_network_input(network, name, channels, rows, columns, value&
        ) bind(c, name='gradus_network_input') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: channels
      integer(c_int64_t), value :: rows
      integer(c_int64_t), value :: columns
      integer(c_int64_t), intent(inout), optional :: value
      integer(c_int) :: answer
    end function
    function gradus_network_dense(network, name, input, options, output) bind(c, name='gradus_network_dense') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      type(gradus_dense_options), intent(in), optional :: options
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_conv2d(network, name, input, options, output) bind(c, name='gradus_network_conv2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      type(gradus_conv2d_options), intent(in), optional :: options
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_conv_transpose2d(network, name, input, options, output&
        ) bind(c, name='gradus_network_conv_transpose2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      type(gradus_conv2d_options), intent(in), optional :: options
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_pool2d(network, name, input, options, output) bind(c, name='gradus_network_pool2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      type(gradus_pool2d_options), intent(in), optional :: options
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_global_average_pool2d(network, name, input, output&
        ) bind(c, name='gradus_network_global_average_pool2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_norm(network, name, input, options, output) bind(c, name='gradus_network_norm') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      type(gradus_norm_options), intent(in), optional :: options
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_activation(network, name, input, kind, parameter, output&
        ) bind(c, name='gradus_network_activation') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int32_t), value :: kind
      real(c_double), value :: parameter
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_dropout(network, name, input, rate, output) bind(c, name='gradus_network_dropout') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      real(c_double), value :: rate
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_flatten(network, name, input, output) bind(c, name='gradus_network_flatten') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_reshape(network, name, input, channels, rows, columns, output&
        ) bind(c, name='gradus_network_reshape') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), value :: channels
      integer(c_int64_t), value :: rows
      integer(c_int64_t), value :: columns
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_add(network, name, left, right, output) bind(c, name='gradus_network_add') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: left
      integer(c_int64_t), value :: right
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_multiply(network, name, left, right, output&
        ) bind(c, name='gradus_network_multiply') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: left
      integer(c_int64_t), value :: right
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_concat(network, name, inputs, count, output) bind(c, name='gradus_network_concat') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), intent(in), optional :: inputs(*)
      integer(c_int32_t), value :: count
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_upsample2d(network, name, input, rows, columns, bilinear, output&
        ) bind(c, name='gradus_network_upsample2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), value :: rows
      integer(c_int64_t), value :: columns
      integer(c_int32_t), value :: bilinear
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_crop2d(network, name, input, top, left, rows, columns, output&
        ) bind(c, name='gradus_network_crop2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), value :: top
      integer(c_int64_t), value :: left
      integer(c_int64_t), value :: rows
      integer(c_int64_t), value :: columns
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_pad2d(network, name, input, pad, mode, output) bind(c, name='gradus_network_pad2d') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      integer(c_int64_t), intent(in), optional :: pad(*)
      integer(c_int32_t), value :: mode
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_normalize(network, name, input, mean, deviation, count, output&
        ) bind(c, name='gradus_network_normalize') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: input
      real(c_double), intent(in), optional :: mean(*)
      real(c_double), intent(in), optional :: deviation(*)
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(inout), optional :: output
      integer(c_int) :: answer
    end function
    function gradus_network_read_onnx(network, path, input, output, rows, columns&
        ) bind(c, name='gradus_network_read_onnx') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: path(*)
      character(kind=c_char), intent(in), optional :: input(*)
      character(kind=c_char), intent(in), optional :: output(*)
      integer(c_int64_t), value :: rows
      integer(c_int64_t), value :: columns
      integer(c_int) :: answer
    end function
    function gradus_network_output(network, name, value) bind(c, name='gradus_network_output') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      integer(c_int64_t), value :: value
      integer(c_int) :: answer
    end function
    function gradus_network_loss(network, output, kind, parameter) bind(c, name='gradus_network_loss') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: output(*)
      integer(c_int32_t), value :: kind
      real(c_double), value :: parameter
      integer(c_int) :: answer
    end function
    function gradus_network_compile(network, options) bind(c, name='gradus_network_compile') result(answer)
      import
      type(c_ptr), value :: network
      type(gradus_compile_options), intent(in), optional :: options
      integer(c_int) :: answer
    end function
    function gradus_network_shape(network, value, channels, rows, columns) bind(c, name='gradus_network_shape') result(answer)
      import
      type(c_ptr), value :: network
      integer(c_int64_t), value :: value
      integer(c_int64_t), intent(inout), optional :: channels
      integer(c_int64_t), intent(inout), optional :: rows
      integer(c_int64_t), intent(inout), optional :: columns
      integer(c_int) :: answer
    end function
    function gradus_network_summary(network, text, size, needed) bind(c, name='gradus_network_summary') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(out), optional :: text(*)
      integer(c_size_t), value :: size
      integer(c_size_t), intent(inout), optional :: needed
      integer(c_int) :: answer
    end function
    function gradus_network_parameter_count(network, parameters, elements&
        ) bind(c, name='gradus_network_parameter_count') result(answer)
      import
      type(c_ptr), value :: network
      integer(c_int64_t), intent(inout), optional :: parameters
      integer(c_int64_t), intent(inout), optional :: elements
      integer(c_int) :: answer
    end function
    function gradus_network_parameter(network, index, name, elements) bind(c, name='gradus_network_parameter') result(answer)
      import
      type(c_ptr), value :: network
      integer(c_int64_t), value :: index
      type(c_ptr), intent(inout) :: name
      integer(c_int64_t), intent(inout), optional :: elements
      integer(c_int) :: answer
    end function
    function gradus_network_get_parameter(network, name, values, count&
        ) bind(c, name='gradus_network_get_parameter') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), value :: values
      integer(c_int64_t), value :: count
      integer(c_int) :: answer
    end function
    function gradus_network_set_parameter(network, name, values, count&
        ) bind(c, name='gradus_network_set_parameter') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: name(*)
      type(c_ptr), value :: values
      integer(c_int64_t), value :: count
      integer(c_int) :: answer
    end function
    function gradus_network_predict(network, input, inputs, output, outputs&
        ) bind(c, name='gradus_network_predict') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: input(*)
      type(gradus_array), intent(in), optional :: inputs
      character(kind=c_char), intent(in), optional :: output(*)
      type(gradus_array), intent(in), optional :: outputs
      integer(c_int) :: answer
    end function
    function gradus_network_save_weights(network, path) bind(c, name='gradus_network_save_weights') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int) :: answer
    end function
    function gradus_network_load_weights(network, path, strict) bind(c, name='gradus_network_load_weights') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int32_t), value :: strict
      integer(c_int) :: answer
    end function
    function gradus_network_write_onnx(network, path) bind(c, name='gradus_network_write_onnx') result(answer)
      import
      type(c_ptr), value :: network
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int) :: answer
    end function
    function gradus_data_create(data) bind(c, name='gradus_data_create') result(answer)
      import
      type(c_ptr), intent(inout) :: data
      integer(c_int) :: answer
    end function
    function gradus_data_free(data) bind(c, name='gradus_data_free') result(answer)
      import
      type(c_ptr), value :: data
      integer(c_int) :: answer
    end function
    function gradus_data_set(data, name, array) bind(c, name='gradus_data_set') result(answer)
      import
      type(c_ptr), value :: data
      character(kind=c_char), intent(in), optional :: name(*)
      type(gradus_array), intent(in), optional :: array
      integer(c_int) :: answer
    end function
    function gradus_data_set_weights(data, weights) bind(c, name='gradus_data_set_weights') result(answer)
      import
      type(c_ptr), value :: data
      type(gradus_array), intent(in), optional :: weights
      integer(c_int) :: answer
    end function
    function gradus_trainer_create(network, options, comm, trainer) bind(c, name='gradus_trainer_create') result(answer)
      import
      type(c_ptr), value :: network
      type(gradus_trainer_options), intent(in), optional :: options
      type(c_ptr), value :: comm
      type(c_ptr), intent(inout) :: trainer
      integer(c_int) :: answer
    end function
    function gradus_trainer_free(trainer) bind(c, name='gradus_trainer_free') result(answer)
      import
      type(c_ptr), value :: trainer
      integer(c_int) :: answer
    end function
    function gradus_trainer_set_learning_rate(trainer, learning_rate&
        ) bind(c, name='gradus_trainer_set_learning_rate') result(answer)
      import
      type(c_ptr), value :: trainer
      real(c_double), value :: learning_rate
      integer(c_int) :: answer
    end function
    function gradus_trainer_set_schedule(trainer, schedule, context&
        ) bind(c, name='gradus_trainer_set_schedule') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_funptr), value :: schedule
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function gradus_trainer_set_step_callback(trainer, callback, context&
        ) bind(c, name='gradus_trainer_set_step_callback') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_funptr), value :: callback
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function gradus_trainer_steps(trainer, steps) bind(c, name='gradus_trainer_steps') result(answer)
      import
      type(c_ptr), value :: trainer
      integer(c_int64_t), intent(inout), optional :: steps
      integer(c_int) :: answer
    end function
    function gradus_trainer_step(trainer, data, report) bind(c, name='gradus_trainer_step') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_ptr), value :: data
      type(gradus_report), intent(inout), optional :: report
      integer(c_int) :: answer
    end function
    function gradus_trainer_train_steps(trainer, data, steps, report&
        ) bind(c, name='gradus_trainer_train_steps') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_ptr), value :: data
      integer(c_int64_t), value :: steps
      type(gradus_report), intent(inout), optional :: report
      integer(c_int) :: answer
    end function
    function gradus_trainer_train_for(trainer, data, milliseconds, report&
        ) bind(c, name='gradus_trainer_train_for') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_ptr), value :: data
      real(c_double), value :: milliseconds
      type(gradus_report), intent(inout), optional :: report
      integer(c_int) :: answer
    end function
    function gradus_trainer_train_epochs(trainer, data, epochs, report&
        ) bind(c, name='gradus_trainer_train_epochs') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_ptr), value :: data
      integer(c_int64_t), value :: epochs
      type(gradus_report), intent(inout), optional :: report
      integer(c_int) :: answer
    end function
    function gradus_trainer_evaluate(trainer, data, report) bind(c, name='gradus_trainer_evaluate') result(answer)
      import
      type(c_ptr), value :: trainer
      type(c_ptr), value :: data
      type(gradus_report), intent(inout), optional :: report
      integer(c_int) :: answer
    end function
    function gradus_trainer_set_checkpoints(trainer, folder, options&
        ) bind(c, name='gradus_trainer_set_checkpoints') result(answer)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: folder(*)
      type(gradus_checkpoint_options), intent(in), optional :: options
      integer(c_int) :: answer
    end function
    function gradus_trainer_resume(trainer, folder, found) bind(c, name='gradus_trainer_resume') result(answer)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: folder(*)
      integer(c_int32_t), intent(inout), optional :: found
      integer(c_int) :: answer
    end function
    function gradus_trainer_save_weights(trainer, path) bind(c, name='gradus_trainer_save_weights') result(answer)
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in), optional :: path(*)
      integer(c_int) :: answer
    end function
  end interface
end module

"""Names bound to our own functions and classes.

FUNCTIONS[public namespace][module of ours] = "name name public=inner ..."
"""

from .c_ops import C_OPS

FUNCTIONS = {
    "oneflow._C": C_OPS,
    "oneflow": {
        "_data.buffers": (
            "record of_record tensor_buffer gen_tensor_buffer tensor_to_tensor_buffer tensor_buffer_to_tensor"
            " tensor_buffer_to_list_of_tensors"
        ),
        "_kernels.detection": "nms roi_align deform_conv2d=raw_deform_conv2d",
        "_kernels.activation": "quick_gelu square_relu",
        "autograd": "set_grad_enabled inference_mode",
        "amp.autocast_mode": "autocast autocast_decorator",
        "_files.serialization": "save load CheckpointError",
        "nn.graph.compiled_step": "compile_step",
        "nn.graph.storage.deploy": "load_graph",
        "_ops.core": (
            "device Generator set_dialect get_dialect is_tensor oneflow_internal_path oneflow_python_base_dir"
        ),
        "_ops.creation": (
            "zeros ones empty full eye arange linspace logspace zeros_like ones_like full_like empty_like"
            " empty_strided hann_window rand randn randint randint_like rand_like randn_like randperm normal"
            " new_empty new_zeros new_ones new_full normal_"
            " global_to_global local_to_global"
        ),
        "_ops.from_data": "tensor as_tensor from_numpy frombuffer",
        "_ops.math": (
            "add sub mul pow fmod floor_divide eq ne lt le gt ge greater greater_equal not_equal logical_and"
            " logical_or logical_xor bitwise_and bitwise_or bitwise_xor isclose allclose logaddexp addcdiv"
            " neg negative relu lerp_ gt_ div_ erfinv_ masked_fill_ clamp_max_"
        ),
        "_ops.reduce": (
            "argmax argmin median prod std var norm quantile topk sort argsort unique bincount cumsum cumprod"
            " max min bernoulli multinomial in_top_k roc_auc_score"
        ),
        "_ops.indexing": (
            "where masked_fill masked_select argwhere searchsorted batch_gather gather_nd scatter_nd"
            " tensor_scatter_nd_update slice slice_update index_add_ scatter scatter_add"
        ),
        "_ops.shape": (
            "transpose squeeze hsplit vsplit tensor_split split flip expand repeat view contiguous"
            " broadcast_like cast meshgrid repeat_interleave pad atleast_1d atleast_2d atleast_3d"
        ),
        "_ops.linalg_ops": "matmul bmm addmm mm dot cross=cross_any",
        "_ops.activation": (
            "gelu mish silu softplus softsign softshrink softmax log_softmax adaptive_avg_pool2d "
            "adaptive_avg_pool3d stft"
        ),
        "_ops.tensor_types": (
            "BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor"
            " ShortTensor BFloat16Tensor ComplexFloatTensor ComplexDoubleTensor char dtypes"
            " convert_oneflow_dtype_to_numpy_dtype set_default_tensor_type"
        ),
        "_ops.scripting": "is_tracing is_scripting ignore unused interface script Final",
        "_ops.partial_fc": "distributed_partial_fc_sample",
        "utils.global_view.aliases": "to_global to_local",
        "compatible.single_client._functions.user_ops": "stateful_op builtin_op",
        "nn.modules.dataset": "decode_onerec read_onerec",
    },
    "oneflow.cuda": {
        "cuda.type_tensor": "ComplexFloatTensor ComplexDoubleTensor",
        "cuda.current": "current_device set_device synchronize",
    },
    "oneflow.hub": {"_files.downloads": "download_url_to_file"},
    "oneflow.jit": {
        "_ops.scripting": "script=jit_script",
    },
    "oneflow.linalg": {
        "_ops.linalg_ops": "norm vector_norm matrix_norm cross diagonal inv",
    },
    "oneflow.nn": {
        "nn.graph.graph": "Graph",
        "nn.modules.dataset": (
            "OFRecordReader OfrecordReader OFRecordRawDecoder OfrecordRawDecoder OFRecordBytesDecoder"
            " OFRecordImageDecoder OFRecordImageDecoderRandomCrop OFRecordImageGpuDecoderRandomCropResize"
            " CropMirrorNormalize CoinFlip GPTIndexedBinDataReader COCOReader OneRecReader"
        ),
        "nn.modules.raw_reader": "RawReader",
        "nn.modules.fused": "FusedBatchNorm1d FusedBatchNorm2d FusedBatchNorm3d FusedMLP",
        "nn.modules.quantization": "FakeQuantization MinMaxObserver MovingAverageMinMaxObserver Quantization",
        "nn.qat.conv": "QatConv1d QatConv2d QatConv3d",
        "nn.modules.custom": (
            "AllReduce CombinedMarginLoss DistributedPariticalFCSample QuickGELU RMSLayerNorm SquareReLU"
        ),
        "nn.modules.loss": (
            "MSELoss L1Loss SmoothL1Loss KLDivLoss BCELoss BCEWithLogitsLoss MarginRankingLoss NLLLoss"
            " CrossEntropyLoss"
        ),
        "nn.modules.activation": "Hardshrink Softshrink Softsign",
        "nn.modules.dropout": "Dropout Dropout1d Dropout2d Dropout3d",
        "nn.modules.pooling": "AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d AvgPool3d",
        "nn.modules.pixelshuffle": "PixelShuffle",
        "nn.modules.padding": "ConstantPad1d ConstantPad2d ConstantPad3d",
        "nn.modules.batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d",
        "nn.modules.instancenorm": "InstanceNorm2d InstanceNorm3d",
        "nn.modules.normalization": "RMSNorm",
        "nn.modules.sparse": "Embedding",
        "nn.modules.rnn": "RNN",
        "nn.modules.container": "ParameterList",
    },
    "oneflow.nn.modules.activation": {"nn.modules.custom": "QuickGELU SquareReLU"},
    "oneflow.nn.modules.loss": {"nn.modules.custom": "CombinedMarginLoss"},
    "oneflow.nn.modules.normalization": {"nn.modules.custom": "RMSLayerNorm"},
    "oneflow.nn.parallel": {
        "nn.parallel.distributed": "DistributedDataParallel",
    },
    "oneflow.nn.functional": {
        "_kernels.detection": "deform_conv2d",
        "_kernels.activation": "quick_gelu square_relu",
        "_kernels.losses": "ctc_greedy_decoder",
        "_ops.nn.losses": (
            "mse_loss l1_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits cross_entropy"
            " sparse_softmax_cross_entropy"
        ),
        "_ops.nn.activation": "softmax gumbel_softmax normalize l2_normalize depend",
        "_ops.nn.dropout": "dropout",
        "_ops.nn.convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "_ops.nn.pooling": "avg_pool1d avg_pool2d avg_pool3d adaptive_max_pool2d",
        "_ops.nn.vision": "grid_sample affine_grid interpolate_like upsample",
        "_ops.nn.norm": "group_norm batch_norm",
    },
    "oneflow.utils.checkpoint": {
        "utils.checkpoint": "checkpoint",
    },
    "oneflow.nn.init": {
        "_ops.nn.init": (
            "kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_ calc_fan get_data_format"
            " CalcGain"
        ),
    },
}

"""Names that mean the same in OneFlow and torch, and are the same object here.

ALIASES[public namespace] = "name name ..."; the torch object has the same name in torch.<namespace>. Nothing
is bound from this table, because names without a row fall back to torch. The rows list the names that are
known to agree, for docs/api and for the test that checks each by identity. Written by
tests/tools/make_aliases.py.
"""

ALIASES = {
    "oneflow": (
        "Size abs acos acosh adaptive_avg_pool1d addcmul all amax amin any arccos arccosh arcsin arcsinh"
        " arctan arctanh as_strided as_strided_ asin asinh atan atan2 atanh baddbmm bfloat16 bitwise_not bool"
        " broadcast_shapes broadcast_tensors cdouble ceil ceil_ cfloat channels_last chunk clamp clamp_"
        " clamp_max clamp_min clamp_min_ clip clip_ clone column_stack complex128 complex64 conj"
        " conj_physical contiguous_format cos cosh default_generator det diag diagonal digamma div double"
        " dstack dtype einsum enable_grad equal erf erfc erfinv exp exp2 expm1 flatten float float16 float32"
        " float64 floor floor_ frac frac_ get_rng_state half hstack imag index_select initial_seed int int16"
        " int32 int64 int8 inverse is_floating_point is_grad_enabled is_nonzero isfinite isinf isnan layout"
        " lgamma log log10 log1p log2 logical_not logsumexp long manual_seed maximum mean memory_format"
        " minimum mode movedim mv nansum narrow no_grad permute preserve_format real reciprocal reshape roll"
        " round round_ row_stack rsqrt seed select selu set_printoptions short sigmoid sign sin sin_ sinh"
        " sqrt square strided sum swapdims t tan tanh tensordot threshold tile tril triu trunc uint8 unbind"
        " unsqueeze use_deterministic_algorithms vstack"
    ),
    "oneflow.ao.quantization": "DeQuantStub QuantStub",
    "oneflow.autograd": "backward enable_grad no_grad",
    "oneflow.autograd.functional": "hessian hvp jacobian jvp vhp vjp",
    "oneflow.autograd.graph": "saved_tensors_hooks",
    "oneflow.autograd.profiler": "emit_nvtx",
    "oneflow.backends.cuda": "matmul",
    "oneflow.backends.cudnn": "benchmark",
    "oneflow.backends.mps": "is_available",
    "oneflow.cuda": (
        "BoolTensor ByteTensor CharTensor DoubleTensor Event FloatTensor HalfTensor IntTensor LongTensor"
        " default_generators device_count empty_cache get_device_capability get_device_name"
        " get_device_properties get_rng_state get_rng_state_all is_available manual_seed manual_seed_all"
        " mem_get_info set_rng_state set_rng_state_all"
    ),
    "oneflow.cuda.amp": "GradScaler",
    "oneflow.distributed": (
        "ReduceOp all_gather all_reduce all_to_all barrier broadcast default_pg_timeout gather is_available"
        " is_initialized recv reduce reduce_scatter send"
    ),
    "oneflow.distributions": "Categorical",
    "oneflow.distributions.utils": "clamp_probs logits_to_probs probs_to_logits",
    "oneflow.fft": (
        "fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2"
        " rfftn"
    ),
    "oneflow.jit": "ignore",
    "oneflow.linalg": "det",
    "oneflow.multiprocessing": (
        "ProcessExitedException ProcessRaisedException get_all_sharing_strategies get_sharing_strategy"
        " init_reductions set_sharing_strategy start_processes"
    ),
    "oneflow.nn": (
        "AdaptiveAvgPool1d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool3d AvgPool1d CELU CTCLoss"
        " Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineSimilarity ELU Flatten"
        " Fold GELU GLU GRU GRUCell GroupNorm Hardsigmoid Hardswish Hardtanh Identity InstanceNorm1d LSTM"
        " LSTMCell LayerNorm LeakyReLU Linear LogSigmoid LogSoftmax MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d"
        " MaxUnpool2d MaxUnpool3d Mish Module ModuleDict ModuleList PReLU PairwiseDistance Parameter"
        " ParameterDict RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d"
        " ReplicationPad1d ReplicationPad2d SELU Sequential SiLU Sigmoid Softmax Softplus SyncBatchNorm Tanh"
        " Threshold TripletMarginLoss Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad2d"
    ),
    "oneflow.nn.functional": (
        "adaptive_max_pool1d adaptive_max_pool3d ctc_loss dropout1d dropout2d dropout3d embedding glu"
        " hardsigmoid interpolate layer_norm linear max_unpool1d max_unpool2d max_unpool3d pad"
        " pairwise_distance relu6 triplet_margin_loss"
    ),
    "oneflow.nn.init": (
        "calculate_gain constant_ eye_ normal_ ones_ orthogonal_ trunc_normal_ uniform_ zeros_"
    ),
    "oneflow.nn.utils": "parameters_to_vector remove_weight_norm skip_init vector_to_parameters weight_norm",
    "oneflow.nn.utils.prune": (
        "BasePruningMethod CustomFromMask Identity L1Unstructured LnStructured RandomStructured"
        " RandomUnstructured custom_from_mask global_unstructured identity is_pruned l1_unstructured"
        " ln_structured random_structured random_unstructured remove"
    ),
    "oneflow.nn.utils.rnn": (
        "PackedSequence bind invert_permutation pack_padded_sequence pack_sequence pad_packed_sequence"
        " pad_sequence unpack_sequence unpad_sequence"
    ),
    "oneflow.onnx": "register_custom_op_symbolic",
    "oneflow.optim.swa_utils": "SWALR update_bn",
    "oneflow.profiler": "ProfilerActivity kineto_available record_function",
    "oneflow.special": (
        "digamma erf erfc erfinv exp2 expm1 log1p log_softmax logsumexp psi round softmax zeta"
    ),
    "oneflow.utils.data": (
        "BatchSampler ConcatDataset Dataset IterDataPipe IterableDataset RandomSampler SequentialSampler"
        " Subset SubsetRandomSampler TensorDataset functional_datapipe get_worker_info"
        " guaranteed_datapipes_determinism non_deterministic"
    ),
    "oneflow.utils.data.dataset": "ChainDataset ConcatDataset Dataset",
    "oneflow.utils.data.sampler": "BatchSampler",
    "oneflow.utils.hooks": "BackwardHook RemovableHandle",
}

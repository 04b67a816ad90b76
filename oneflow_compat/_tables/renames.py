"""torch's functions under OneFlow's argument names.

RENAMES[public namespace][name] = (torch path, parameters)
The parameters are OneFlow's, in order: `oneflow_name=torch_name` if the names differ, `name:default` if torch
does not provide the default. torch accepts the parameters after `|` only by keyword; OneFlow accepts them by
position too.
"""

RENAMES = {
    "oneflow": {
        "cat": ("torch.cat", "inputs=tensors dim:0"),
        "concat": ("torch.concat", "inputs=tensors dim:0"),
        "stack": ("torch.stack", "inputs=tensors dim:0"),
        "broadcast_to": ("torch.broadcast_to", "input shape=size"),
        "unflatten": ("torch.unflatten", "input dim shape=sizes"),
        "lerp": ("torch.lerp", "start=input end weight"),
        "swapaxes": ("torch.swapaxes", "input dim0=axis0 dim1=axis1"),
        "from_dlpack": ("torch.from_dlpack", "obj=ext_tensor"),
        "set_rng_state": ("torch.set_rng_state", "state=new_state"),
        "gather": ("torch.gather", "input dim index | sparse_grad:False"),
        "index_add": ("torch.index_add", "input dim index source | alpha:1"),
        "nonzero": ("torch.nonzero", "input | as_tuple:False"),
        "zero_": ("torch.zero_", "self=input"),
        "numel": ("torch.numel", "input"),
    },
    "oneflow.nn.functional": {
        "relu": ("torch.nn.functional.relu", "x=input inplace"),
        "celu": ("torch.nn.functional.celu", "x=input alpha inplace"),
        "elu": ("torch.nn.functional.elu", "x=input alpha inplace"),
        "hardswish": ("torch.nn.functional.hardswish", "x=input inplace"),
        "hardtanh": ("torch.nn.functional.hardtanh", "x=input min_val max_val inplace"),
        "leaky_relu": ("torch.nn.functional.leaky_relu", "x=input alpha=negative_slope inplace"),
        "logsigmoid": ("torch.nn.functional.logsigmoid", "x=input"),
        "mish": ("torch.nn.functional.mish", "x=input inplace"),
        "prelu": ("torch.nn.functional.prelu", "x=input alpha=weight"),
        "rrelu": ("torch.nn.functional.rrelu", "x=input lower upper training inplace"),
        "rrelu_": ("torch.nn.functional.rrelu_", "x=input lower upper training"),
        "selu": ("torch.nn.functional.selu", "x=input inplace"),
        "sigmoid": ("torch.nn.functional.sigmoid", "x=input"),
        "silu": ("torch.nn.functional.silu", "x=input inplace"),
        "softsign": ("torch.nn.functional.softsign", "x=input"),
        "softplus": ("torch.nn.functional.softplus", "x=input beta:1.0 threshold:20.0"),
        "tanh": ("torch.nn.functional.tanh", "x=input"),
        "threshold": ("torch.nn.functional.threshold", "x=input threshold value inplace"),
        "cosine_similarity": ("torch.nn.functional.cosine_similarity", "x=x1 y=x2 dim:1 eps:1e-8"),
        "log_softmax": ("_ops.nn_activation:log_softmax", "x=input dim dtype"),
        "gelu": ("_ops.nn_activation:gelu", "x=input approximate"),
        "hardshrink": ("_ops.nn_activation:hardshrink", "x=input lambd inplace"),
        "softshrink": ("_ops.nn_activation:softshrink", "x=input alpha inplace"),
        "smooth_l1_loss": ("_ops.nn_losses:smooth_l1_loss", "logits=input label=target beta reduction"),
        "one_hot": ("_ops.nn_losses:one_hot", "input=tensor num_classes on_value off_value"),
        "fold": ("_ops.nn_conv:fold", "x=input output_size kernel_size dilation padding stride data_format"),
        "unfold": ("_ops.nn_conv:unfold", "x=input kernel_size dilation padding stride data_format"),
        "max_pool1d": (
            "_ops.nn_pooling:max_pool1d",
            "x=input kernel_size stride padding dilation return_indices ceil_mode data_format",
        ),
        "max_pool2d": (
            "_ops.nn_pooling:max_pool2d",
            "x=input kernel_size stride padding dilation return_indices ceil_mode data_format",
        ),
        "max_pool3d": (
            "_ops.nn_pooling:max_pool3d",
            "x=input kernel_size stride padding dilation return_indices ceil_mode data_format",
        ),
        "adaptive_avg_pool1d": ("_ops.nn_pooling:adaptive_avg_pool1d", "x=input output_size data_format"),
        "adaptive_avg_pool2d": ("_ops.nn_pooling:adaptive_avg_pool2d", "x=input output_size data_format"),
        "adaptive_avg_pool3d": ("_ops.nn_pooling:adaptive_avg_pool3d", "x=input output_size data_format"),
    },
    "oneflow._C": {
        "cosine_similarity": ("torch.nn.functional.cosine_similarity", "x=x1 y=x2 dim:1 eps:1e-8"),
        "prelu": ("torch.nn.functional.prelu", "x=input alpha=weight"),
        "rrelu": ("torch.nn.functional.rrelu", "x=input lower upper training inplace"),
        "margin_ranking_loss": (
            "torch.nn.functional.margin_ranking_loss",
            "input_1=input1 input_2=input2 target margin | reduction:'mean'",
        ),
        "adaptive_avg_pool1d": ("_ops.nn_pooling:adaptive_avg_pool1d", "x=input output_size data_format"),
        "adaptive_avg_pool2d": ("_ops.nn_pooling:adaptive_avg_pool2d", "x=input output_size data_format"),
        "adaptive_avg_pool3d": ("_ops.nn_pooling:adaptive_avg_pool3d", "x=input output_size data_format"),
        "vector_norm": ("_ops.linalg_ops:vector_norm", "input=self ord dim keepdim dtype"),
        "matrix_norm": ("_ops.linalg_ops:matrix_norm", "input=self ord dim keepdim dtype"),
        "reduce_nansum": ("_kernels.reductions:reduce_nansum", "input=x dim keepdim dtype"),
        "tensor_to_tensor_buffer": ("_data.buffers:tensor_to_tensor_buffer", "input=x instance_dims"),
    },
}

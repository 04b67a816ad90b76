"""The public names that `oneflow.set_dialect` switches.

DIALECT[public name] = torch path: the meaning differs.
EXTENDED[namespace] = "name name ...": our function accepts everything that torch's accepts, and more. In
torch's dialect the name is still torch's object, because programs pickle, patch and compare functions and
classes (`func is torch.add`, a table of functions for `__torch_function__`, `type(m) is nn.Dropout`).
STAND_INS[namespace] = ("name", ...): functions that access files are ours in every dialect. In torch's
dialect they are patched and pickled as torch's.
"""

DIALECT = {
    "oneflow.device": "torch.device",
    "oneflow.tensor": "torch.tensor",
    "oneflow.as_tensor": "torch.as_tensor",
    "oneflow.isclose": "torch.isclose",
    "oneflow.allclose": "torch.allclose",
    "oneflow.norm": "torch.norm",
    "oneflow.sort": "torch.sort",
    "oneflow.argsort": "torch.argsort",
    "oneflow.BFloat16Tensor": "torch.BFloat16Tensor",
    "oneflow.BoolTensor": "torch.BoolTensor",
    "oneflow.ByteTensor": "torch.ByteTensor",
    "oneflow.CharTensor": "torch.CharTensor",
    "oneflow.DoubleTensor": "torch.DoubleTensor",
    "oneflow.FloatTensor": "torch.FloatTensor",
    "oneflow.HalfTensor": "torch.HalfTensor",
    "oneflow.IntTensor": "torch.IntTensor",
    "oneflow.LongTensor": "torch.LongTensor",
    "oneflow.ShortTensor": "torch.ShortTensor",
    "oneflow.script": "torch.jit.script",
    "oneflow.__version__": "torch.__version__",
    "oneflow.version.__version__": "torch.version.__version__",
    "oneflow.utils.checkpoint.checkpoint": "torch.utils.checkpoint.checkpoint",
    "oneflow.optim.SGD": "torch.optim.SGD",
    "oneflow.optim.Adam": "torch.optim.Adam",
    "oneflow.optim.AdamW": "torch.optim.AdamW",
    "oneflow.optim.Adagrad": "torch.optim.Adagrad",
    "oneflow.optim.Adadelta": "torch.optim.Adadelta",
    "oneflow.optim.RMSprop": "torch.optim.RMSprop",
    "oneflow.optim.LBFGS": "torch.optim.LBFGS",
    "oneflow.optim.Optimizer": "torch.optim.Optimizer",
    "oneflow.optim.lr_scheduler.LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "oneflow.optim.lr_scheduler._LRScheduler": "torch.optim.lr_scheduler._LRScheduler",
    "oneflow.optim.lr_scheduler.StepLR": "torch.optim.lr_scheduler.StepLR",
    "oneflow.optim.lr_scheduler.MultiStepLR": "torch.optim.lr_scheduler.MultiStepLR",
    "oneflow.optim.lr_scheduler.ExponentialLR": "torch.optim.lr_scheduler.ExponentialLR",
    "oneflow.optim.lr_scheduler.ConstantLR": "torch.optim.lr_scheduler.ConstantLR",
    "oneflow.optim.lr_scheduler.LinearLR": "torch.optim.lr_scheduler.LinearLR",
    "oneflow.optim.lr_scheduler.CosineAnnealingLR": "torch.optim.lr_scheduler.CosineAnnealingLR",
    "oneflow.optim.lr_scheduler.PolynomialLR": "torch.optim.lr_scheduler.PolynomialLR",
    "oneflow.optim.lr_scheduler.CosineAnnealingWarmRestarts": (
        "torch.optim.lr_scheduler.CosineAnnealingWarmRestarts"
    ),
    "oneflow.optim.lr_scheduler.LambdaLR": "torch.optim.lr_scheduler.LambdaLR",
    "oneflow.optim.lr_scheduler.MultiplicativeLR": "torch.optim.lr_scheduler.MultiplicativeLR",
    "oneflow.optim.lr_scheduler.SequentialLR": "torch.optim.lr_scheduler.SequentialLR",
    "oneflow.optim.lr_scheduler.ChainedScheduler": "torch.optim.lr_scheduler.ChainedScheduler",
    "oneflow.optim.lr_scheduler.ReduceLROnPlateau": "torch.optim.lr_scheduler.ReduceLROnPlateau",
    "oneflow.optim.swa_utils.AveragedModel": "torch.optim.swa_utils.AveragedModel",
    "oneflow.amp.GradScaler": "torch.amp.GradScaler",
    "oneflow.amp.autocast": "torch.amp.autocast",
    "oneflow.autocast": "torch.autocast",
    "oneflow.nn.utils.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "oneflow.nn.utils.clip_grad_value_": "torch.nn.utils.clip_grad_value_",
    "oneflow.inference_mode": "torch.inference_mode",
    "oneflow.set_grad_enabled": "torch.set_grad_enabled",
    "oneflow.autograd.inference_mode": "torch.inference_mode",
    "oneflow.autograd.set_grad_enabled": "torch.set_grad_enabled",
    "oneflow.nn.functional.max_pool1d": "torch.nn.functional.max_pool1d",
    "oneflow.nn.functional.max_pool2d": "torch.nn.functional.max_pool2d",
    "oneflow.nn.functional.max_pool3d": "torch.nn.functional.max_pool3d",
    "oneflow.nn.functional.kl_div": "torch.nn.functional.kl_div",
    "oneflow.nn.functional.gumbel_softmax": "torch.nn.functional.gumbel_softmax",
    "oneflow.nn.KLDivLoss": "torch.nn.KLDivLoss",
    "oneflow.nn.RMSNorm": "torch.nn.RMSNorm",
    "oneflow.nn.parallel.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "oneflow.utils.data.DataLoader": "torch.utils.data.DataLoader",
    "oneflow.utils.data.default_collate": "torch.utils.data.default_collate",
    "oneflow.autograd.grad": "torch.autograd.grad",
    # the same under the paths of their files
    "oneflow.optim.optimizer.Optimizer": "torch.optim.Optimizer",
    "oneflow.optim.sgd.SGD": "torch.optim.SGD",
    "oneflow.optim.adam.Adam": "torch.optim.Adam",
    "oneflow.optim.adamw.AdamW": "torch.optim.AdamW",
    "oneflow.optim.adagrad.Adagrad": "torch.optim.Adagrad",
    "oneflow.optim.adadelta.Adadelta": "torch.optim.Adadelta",
    "oneflow.optim.rmsprop.RMSprop": "torch.optim.RMSprop",
    "oneflow.optim.lbfgs.LBFGS": "torch.optim.LBFGS",
    "oneflow.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "oneflow.amp.autocast_mode.autocast": "torch.amp.autocast",
    "oneflow.nn.utils.clip_grad.clip_grad_norm_": "torch.nn.utils.clip_grad_norm_",
    "oneflow.nn.utils.clip_grad.clip_grad_value_": "torch.nn.utils.clip_grad_value_",
    "oneflow.nn.modules.loss.KLDivLoss": "torch.nn.KLDivLoss",
    "oneflow.nn.modules.normalization.RMSNorm": "torch.nn.RMSNorm",
    "oneflow.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "oneflow.utils.data.dataloader.default_collate": "torch.utils.data.default_collate",
}

EXTENDED = {
    "oneflow": (
        """
        Generator softmax log_softmax stft is_tensor from_numpy frombuffer set_default_tensor_type
        set_rng_state from_dlpack
        zeros ones empty full eye arange linspace logspace zeros_like ones_like full_like empty_like
        empty_strided hann_window rand randn randint randint_like rand_like randn_like randperm normal
        where masked_fill masked_select argwhere searchsorted scatter scatter_add gather index_add nonzero
        matmul bmm addmm mm dot cross
        add sub mul pow fmod floor_divide lerp eq ne lt le gt ge greater greater_equal not_equal logical_and
        logical_or logical_xor
        bitwise_and bitwise_or bitwise_xor logaddexp addcdiv neg negative relu clamp_max_ zero_ numel
        argmax argmin median prod std var quantile topk unique bincount cumsum cumprod max min bernoulli
        multinomial
        transpose squeeze hsplit vsplit tensor_split split flip meshgrid repeat_interleave atleast_1d
        atleast_2d atleast_3d
        cat concat stack broadcast_to unflatten swapaxes
    """
    ),
    "oneflow.cuda": "current_device set_device synchronize",
    "oneflow.jit": "script",
    "oneflow.linalg": "norm vector_norm matrix_norm cross diagonal inv",
    "oneflow.nn": (
        """
        Hardshrink Softshrink Softsign ParameterList Dropout Dropout1d Dropout2d Dropout3d RNN Embedding
        PixelShuffle
        MSELoss L1Loss SmoothL1Loss BCELoss BCEWithLogitsLoss MarginRankingLoss NLLLoss CrossEntropyLoss
        ConstantPad1d ConstantPad2d ConstantPad3d AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d AvgPool3d
        BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm2d InstanceNorm3d
    """
    ),
    "oneflow.nn.functional": (
        """
        relu celu elu hardswish hardtanh leaky_relu logsigmoid mish prelu rrelu rrelu_ selu sigmoid silu
        softsign softplus tanh threshold
        gelu hardshrink softshrink softmax log_softmax normalize one_hot fold unfold cosine_similarity dropout
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        mse_loss l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits cross_entropy
        avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool2d
        grid_sample affine_grid upsample group_norm batch_norm
    """
    ),
    "oneflow.nn.init": "kaiming_normal_ kaiming_uniform_ xavier_normal_ xavier_uniform_",
}

STAND_INS = {"oneflow": ("load", "save")}

"""OneFlow's positional order and torch's call forms work for the same names."""

import inspect

import pytest
import torch

import oneflow as flow
from oneflow.nn import functional as F

X, Y = torch.randn(4, 3), torch.rand(4, 3)
W, LABELS = torch.rand(3), torch.tensor([0, 2, 1, 1])


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("MSELoss('sum')", "MSELoss(reduction='sum')"),
        ("MSELoss(None, None, 'sum')", "MSELoss(None, None, 'sum')"),
        ("MSELoss(False)", "MSELoss(False)"),
        ("MSELoss(size_average=False)", "MSELoss(size_average=False)"),
        ("L1Loss(None, False)", "L1Loss(None, False)"),
        ("SmoothL1Loss('none', 0.5)", "SmoothL1Loss(reduction='none', beta=0.5)"),
        ("SmoothL1Loss(None, None, 'sum', 0.5)", "SmoothL1Loss(None, None, 'sum', 0.5)"),
        ("SmoothL1Loss(False, beta=0.5)", "SmoothL1Loss(False, beta=0.5)"),
        ("KLDivLoss('batchmean', True)", "KLDivLoss(reduction='batchmean', log_target=True)"),
        ("KLDivLoss(None, None, 'sum', True)", "KLDivLoss(None, None, 'sum', True)"),
    ],
)
def test_losses_built_as_in_oneflow_equal_torchs(ours, theirs):
    assert torch.equal(eval(f"flow.nn.{ours}")(X, Y), eval(f"torch.nn.{theirs}")(X, Y))


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("BCELoss(W, 'sum')", "BCELoss(W, reduction='sum')"),
        ("BCELoss(W, None, None, 'sum')", "BCELoss(W, None, None, 'sum')"),
        ("BCEWithLogitsLoss(None, 'sum', W)", "BCEWithLogitsLoss(reduction='sum', pos_weight=W)"),
        ("BCEWithLogitsLoss(None, None, None, 'none', W)", "BCEWithLogitsLoss(None, None, None, 'none', W)"),
        ("BCEWithLogitsLoss(W, False)", "BCEWithLogitsLoss(W, False)"),
        ("BCEWithLogitsLoss(W, True, False)", "BCEWithLogitsLoss(W, True, False)"),
    ],
)
def test_binary_loss_constructors(ours, theirs):
    assert torch.equal(eval(f"flow.nn.{ours}")(Y, Y), eval(f"torch.nn.{theirs}")(Y, Y))


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (
            "CrossEntropyLoss(W, 1, 'sum', 0.1)",
            "CrossEntropyLoss(W, ignore_index=1, reduction='sum', label_smoothing=0.1)",
        ),
        (
            "CrossEntropyLoss(W, None, 1, None, 'none', 0.1)",
            "CrossEntropyLoss(W, None, 1, None, 'none', 0.1)",
        ),
        ("CrossEntropyLoss(W, None, reduction='sum')", "CrossEntropyLoss(W, None, reduction='sum')"),
        ("CrossEntropyLoss(W, False, 2)", "CrossEntropyLoss(W, False, 2)"),
        (
            "CrossEntropyLoss(W, None, 2, label_smoothing=0.3)",
            "CrossEntropyLoss(W, None, 2, label_smoothing=0.3)",
        ),
        ("NLLLoss(W, 2, 'sum')", "NLLLoss(W, ignore_index=2, reduction='sum')"),
        ("NLLLoss(W, None, 2, None, 'none')", "NLLLoss(W, None, 2, None, 'none')"),
        ("NLLLoss(W, False)", "NLLLoss(W, False)"),
    ],
)
def test_class_losses_take_labels_of_any_integer_type(ours, theirs):
    for labels in (LABELS, LABELS.int(), LABELS.to(torch.int8), LABELS.to(torch.uint8)):
        assert torch.equal(eval(f"flow.nn.{ours}")(X, labels), eval(f"torch.nn.{theirs}")(X, LABELS))


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("mse_loss(X, Y, 'sum')", "mse_loss(X, Y, reduction='sum')"),
        ("mse_loss(X, Y, None, None, 'sum')", "mse_loss(X, Y, None, None, 'sum')"),
        ("mse_loss(X, Y, size_average=False)", "mse_loss(X, Y, size_average=False)"),
        ("l1_loss(X, Y, 'none')", "l1_loss(X, Y, reduction='none')"),
        ("smooth_l1_loss(X, Y, 0.5, 'sum')", "smooth_l1_loss(X, Y, reduction='sum', beta=0.5)"),
        (
            "smooth_l1_loss(logits=X, label=Y, beta=0.5, reduction='sum')",
            "smooth_l1_loss(X, Y, reduction='sum', beta=0.5)",
        ),
        ("smooth_l1_loss(X, Y, None, None, 'sum', 0.5)", "smooth_l1_loss(X, Y, None, None, 'sum', 0.5)"),
        ("smooth_l1_loss(X, Y, False)", "smooth_l1_loss(X, Y, False)"),
        ("smooth_l1_loss(input=X, target=Y)", "smooth_l1_loss(X, Y)"),
        ("kl_div(X, Y, True, 'sum')", "kl_div(X, Y, reduction='sum', log_target=True)"),
        ("kl_div(X, Y, None, None, 'sum')", "kl_div(X, Y, None, None, 'sum')"),
        ("binary_cross_entropy(Y, Y, W, 'sum')", "binary_cross_entropy(Y, Y, W, reduction='sum')"),
        ("binary_cross_entropy(Y, Y, W, False)", "binary_cross_entropy(Y, Y, W, False)"),
        (
            "binary_cross_entropy_with_logits(X, Y, None, W, 'sum')",
            "binary_cross_entropy_with_logits(X, Y, reduction='sum', pos_weight=W)",
        ),
        (
            "binary_cross_entropy_with_logits(X, Y, W, None, None, 'sum', W)",
            "binary_cross_entropy_with_logits(X, Y, W, None, None, 'sum', W)",
        ),
        (
            "binary_cross_entropy_with_logits(X, Y, W, False)",
            "binary_cross_entropy_with_logits(X, Y, W, False)",
        ),
        (
            "cross_entropy(X, LABELS, W, 1, 'sum', 0.1)",
            "cross_entropy(X, LABELS, W, ignore_index=1, reduction='sum', label_smoothing=0.1)",
        ),
        (
            "cross_entropy(X, LABELS.int(), W, None, 1, None, 'none', 0.2)",
            "cross_entropy(X, LABELS, W, None, 1, None, 'none', 0.2)",
        ),
        (
            "cross_entropy(X, LABELS, W, None, reduction='sum')",
            "cross_entropy(X, LABELS, W, None, reduction='sum')",
        ),
        ("cross_entropy(X, Y)", "cross_entropy(X, Y)"),
        ("softmax(x=X, dim=1)", "softmax(X, 1)"),
        ("softmax(X, 1, torch.float64)", "softmax(X, 1, dtype=torch.float64)"),
        ("softmax(X, 1, 3, torch.float64)", "softmax(X, 1, 3, torch.float64)"),
        ("log_softmax(X, dim=-1, dtype=torch.float64)", "log_softmax(X, -1, dtype=torch.float64)"),
        ("leaky_relu(X, negative_slope=0.3)", "leaky_relu(X, 0.3)"),
        ("leaky_relu(input=X, alpha=0.3)", "leaky_relu(X, 0.3)"),
        ("softshrink(X, lambd=0.2)", "softshrink(X, 0.2)"),
        ("normalize(X, dim=0)", "normalize(X, dim=0)"),
        ("one_hot(tensor=LABELS)", "one_hot(LABELS)"),
        ("max_pool2d(X[None], 2, 1)", "max_pool2d(X[None], 2, 1)"),
        ("avg_pool2d(X[None], 2, 1, divisor_override=None)", "avg_pool2d(X[None], 2, 1)"),
        ("group_norm(X, 3, W, W, 1e-5, 3)", "group_norm(X, 3, W, W)"),
        ("upsample(X[None], 7)", "interpolate(X[None], 7)"),
        ("upsample(X[None], scale_factor=2)", "interpolate(X[None], scale_factor=2)"),
    ],
)
def test_functions_called_as_in_oneflow_equal_torchs(ours, theirs):
    assert torch.equal(eval(f"F.{ours}"), eval(f"torch.nn.functional.{theirs}"))


@pytest.mark.parametrize("order", ["1.0, True, 1e-10, 1", "1.0, True, dim=1", "tau=1.0, hard=True, dim=1"])
def test_gumbel_softmax_in_torch_order(order):
    torch.manual_seed(3)
    want = eval(f"torch.nn.functional.gumbel_softmax(X, {order})")
    torch.manual_seed(3)
    assert torch.equal(eval(f"F.gumbel_softmax(X, {order})"), want)


def test_gumbel_softmax_takes_a_generator():
    logits = X.clone().requires_grad_(True)
    one, two = (F.gumbel_softmax(logits, 0.7, 1, True, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, two) and torch.equal(one.sum(1), torch.ones(4))
    (one * Y).sum().backward()
    assert logits.grad.abs().sum() > 0


def test_max_pool_has_return_indices_before_ceil_mode():
    x = torch.randn(1, 2, 7, 7)
    values, indices = F.max_pool2d(x, 2, 2, 0, 1, True)
    assert values.shape == indices.shape == (1, 2, 3, 3)
    with flow_dialect("torch"):
        assert flow.nn.functional.max_pool2d is torch.nn.functional.max_pool2d
        assert flow.nn.functional.max_pool2d(x, 2, 2, 0, 1, True).shape == (1, 2, 4, 4)
    assert isinstance(flow.nn.functional.max_pool2d(x, 2, 2, 0, 1, True), tuple)


class flow_dialect:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        flow.set_dialect(self.name)

    def __exit__(self, *exc):
        flow.set_dialect("oneflow")


@pytest.mark.parametrize(
    "call, words",
    [
        ("flow.nn.MSELoss('sum', 1)", "positional"),
        ("F.mse_loss(X, Y, 'sum', 1)", "positional"),
        ("F.cross_entropy(X, LABELS, None, -100, 'sum', 0.0, 1)", "positional"),
        ("F.relu(x=X, input=X)", "twice"),
        ("F.softmax(X, x=X)", "x"),
        ("F.gumbel_softmax(tau=1.0)", "logits"),
        (
            "flow.nn.Embedding(3, 2, None, None, 2.0, False, False, None, 'cpu', torch.float32, 1)",
            "positional",
        ),
        ("flow.nn.ParameterList([], values=[])", "two names"),
    ],
)
def test_errors_of_wrong_calls_name_the_cause(call, words):
    with pytest.raises(TypeError, match=words):
        eval(call)


@pytest.mark.parametrize(
    "name",
    [
        "MSELoss",
        "L1Loss",
        "SmoothL1Loss",
        "KLDivLoss",
        "BCELoss",
        "BCEWithLogitsLoss",
        "MarginRankingLoss",
        "NLLLoss",
        "CrossEntropyLoss",
        "Hardshrink",
        "Softshrink",
        "Softsign",
        "Dropout",
        "Dropout1d",
        "Dropout2d",
        "Dropout3d",
        "AdaptiveAvgPool2d",
        "AdaptiveMaxPool2d",
        "AvgPool2d",
        "AvgPool3d",
        "PixelShuffle",
        "ConstantPad1d",
        "ConstantPad2d",
        "ConstantPad3d",
        "RMSNorm",
        "Embedding",
        "ParameterList",
        "RNN",
    ],
)
def test_classes_replace_torchs_classes(name):
    """A subclass that shares name and repr, and whose isinstance() knows torch's own modules."""
    ours, theirs = getattr(flow.nn, name), getattr(torch.nn, name)
    args = {
        "AdaptiveAvgPool2d": (3,),
        "AdaptiveMaxPool2d": (3,),
        "AvgPool2d": (2,),
        "AvgPool3d": (2,),
        "PixelShuffle": (2,),
        "ConstantPad1d": (1, 0),
        "ConstantPad2d": (1, 0),
        "ConstantPad3d": (1, 0),
        "RMSNorm": (3, 1e-5),
        "Embedding": (3, 2),
        "RNN": (3, 2),
        "ParameterList": ([torch.nn.Parameter(W)],),
    }.get(name, ())
    a, b = ours(*args), theirs(*args)
    assert issubclass(ours, theirs) and ours.__name__ == name and repr(a) == repr(b)
    assert isinstance(a, ours) and isinstance(b, ours) and isinstance(a, theirs) and issubclass(theirs, ours)
    assert not isinstance(torch.nn.Linear(1, 1), ours)
    assert list(a.state_dict()) == list(b.state_dict())
    assert ours is getattr(__import__(ours.__module__, fromlist=["x"]), name), (
        "found under its own module, so it pickles"
    )


def test_a_users_subclass_is_not_replaced():
    from abc import ABC, abstractmethod

    class Mine(flow.nn.Dropout, ABC):
        @abstractmethod
        def size(self): ...

    class Full(Mine):
        def size(self):
            return 1

    with pytest.raises(TypeError, match="abstract"):
        Mine()
    assert isinstance(Full(0.3), Mine) and isinstance(Full(), torch.nn.Dropout)
    assert not isinstance(torch.nn.Dropout(), Full) and not isinstance(flow.nn.Dropout(), Mine)


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("nn.CrossEntropyLoss", "weight ignore_index reduction label_smoothing"),
        ("nn.functional.relu", "x inplace"),
        ("nn.functional.gumbel_softmax", "x tau dim hard generator"),
        (
            "nn.functional.max_pool2d",
            "x kernel_size stride padding dilation return_indices ceil_mode data_format",
        ),
        (
            "nn.Embedding",
            (
                "num_embeddings embedding_dim padding_idx max_norm norm_type scale_grad_by_freq sparse"
                " _weight device dtype"
            ),
        ),
    ],
)
def test_signatures_are_oneflows(name, parameters):
    target = flow
    for part in name.split("."):
        target = getattr(target, part)
    assert list(inspect.signature(target).parameters)[: len(parameters.split())] == parameters.split()


@pytest.mark.parametrize(
    "name",
    "Linear Conv2d ConvTranspose2d InstanceNorm1d LayerNorm GroupNorm ReLU GELU SiLU LSTM GRU"
    " MaxPool2d Flatten Sequential ModuleList "
    "ModuleDict ParameterDict Upsample TripletMarginLoss CTCLoss Parameter Module Identity"
    " TransformerEncoder".split(),
)
def test_the_rest_is_torchs_own(name):
    assert getattr(flow.nn, name) is getattr(torch.nn, name)


def test_no_dropout_rates_are_none_at_all():
    assert flow.nn.FusedMLP(4, [3, 3], 1, []).dropout_rate_list == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="2 hidden layers, found 1"):
        flow.nn.FusedMLP(4, [3, 3], 1, [0.1])


def test_deep_paths_of_nn_can_be_imported():
    from oneflow.nn.common_types import (  # noqa: F401
        _size_1_t,
        _size_2_t,
        _size_3_t,
        _size_4_t,
        _size_6_t,
        _size_any_t,
    )
    from oneflow.nn.modules.batchnorm import _BatchNorm
    from oneflow.nn.modules.loss import CrossEntropyLoss, _Loss
    from oneflow.nn.modules.utils import _pair
    from oneflow.nn.parameter import Parameter

    assert _BatchNorm is torch.nn.modules.batchnorm._BatchNorm and _Loss is torch.nn.modules.loss._Loss
    assert (
        CrossEntropyLoss is flow.nn.CrossEntropyLoss
        and Parameter is torch.nn.Parameter
        and _pair(2) == (2, 2)
    )


# class of oneflow.nn: the module real OneFlow 0.9.0 pickles it under, where torch has no such class or module
PICKLED = {
    "CombinedMarginLoss": "loss",
    "QuickGELU": "activation",
    "RMSLayerNorm": "normalization",
    "FusedBatchNorm2d": "batchnorm_fused",
    "FusedMLP": "fused_mlp",
    "FakeQuantization": "fake_quantization",
    "MovingAverageMinMaxObserver": "moving_average_min_max_observer",
    "MinMaxObserver": "min_max_observer",
    "Quantization": "quantization",
    "CrossEntropyLoss": "loss",
    "Conv2d": "conv",
    "LSTM": "rnn",
    "Module": "module",
    "Sequential": "container",
}


@pytest.mark.parametrize("name", PICKLED)
def test_classes_are_found_where_oneflow_pickles_them(name):
    import importlib

    assert getattr(importlib.import_module(f"oneflow.nn.modules.{PICKLED[name]}"), name) is getattr(
        flow.nn, name
    )


@pytest.mark.parametrize("factors", [{"upscale_factor": 2}, {"h_upscale_factor": 4, "w_upscale_factor": 1}])
def test_pixel_shuffle_of_an_empty_batch(factors):
    x = flow.zeros(0, 4, 3, 5, requires_grad=True)
    y = flow.nn.PixelShuffle(**factors)(x)
    y.sum().backward()
    assert (
        y.shape == (0, 1, 12 if len(factors) == 2 else 6, 5 if len(factors) == 2 else 10)
        and x.grad.shape == x.shape
    )


def test_pixel_shuffle_under_its_old_name():
    from oneflow.nn.modules.pixelshuffle import PixelShufflev2

    assert PixelShufflev2 is flow.nn.PixelShuffle

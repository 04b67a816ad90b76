"""Calls in the argument orders of OneFlow 0.1 to 0.5 bind the intended parameters.
tests/golden/legacy_signatures.json has the signatures by version (written by record_legacy_signatures.py).
"""

import functools
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from legacy_jobs import result_of_job

import oneflow
import oneflow.compatible.single_client as flow
from oneflow._tables.legacy.orders import KINDS, ORDERS, REMOVED
from oneflow.compatible.single_client._functions.orders import bound_arguments

SIGNATURES = json.loads((Path(__file__).parent.parent / "golden" / "legacy_signatures.json").read_text())
ABSENT = {name for names in REMOVED.values() for name in names.split()}
BLOB = torch.zeros(4, 5)
SAMPLES = {  # a value of each kind that older versions told apart
    "blob": BLOB,
    "bool": True,
    "int": 3,
    "number": 0.5,
    "string": "name",
    "sequence": [1, 0],
    "int or sequence": 300,
    "string or sequence": ["bias"],
    "axis of the first argument": 1,
    "at most the target size": 200,
    "formula": "cambricon",
    "distribution": flow.distribute.split(0),
    "sbp": ["B"],
    "clipping": flow.optimizer.grad_clipping.by_global_norm(1.0),
    "loss scaling": flow.optimizer.loss_scale.static_loss_scale(2.0),
    "config": flow.function_config(),
    "job type": "train",
    "generator": torch.Generator(),
}
SAMPLE_OF = {
    parameter: SAMPLES[kind] for kind, parameters in KINDS.items() for parameter in parameters.split()
}
SAMPLE_OF |= {"input": BLOB, "max_size": 900, "inputs": [BLOB], "values": [BLOB]}
SAME_MEANING = {  # {old parameter: the one in its position in 0.5}; 0.5 itself gives the two the same meaning
    "data.OFRecordRawDecoder": {"auto_zero_padding": "truncate"},
    "data.ofrecord_raw_decoder": {"auto_zero_padding": "truncate"},
    "data.RawCodec": {"auto_zero_padding": "truncate"},
    "sbp.split": {"axis": "dim"},
}
REQUIRED = {  # parameters that 0.1 gave the default None, and then refused
    "nn.dropout": 5,
    "nn.sigmoid_cross_entropy_with_logits": 2,
    "nn.softmax_cross_entropy_with_logits": 2,
    "nn.sparse_cross_entropy": 2,
    "nn.sparse_softmax_cross_entropy_with_logits": 2,
}
OTHERS = {  # classes of torch, and annotations, whose recorded signature is not the one that is called
    "nn.Module": "the named module of 0.2 is flow.deprecated.nn.Module, as in 0.4",
    "nn.Module.state_dict": "torch's",
    "nn.Module.to": "torch's",
    "typing.Numpy.Placeholder": "called with a shape",
    "typing.ListNumpy.Placeholder": "called with a shape",
}


def resolved(name):
    owner = flow
    for part in name.split("."):
        owner = getattr(flow.FunctionConfig() if owner is flow.FunctionConfig else owner, part)
    return owner


def is_method(name):
    return isinstance(resolved(name.rpartition(".")[0]), type) if "." in name else False


def parameters_of(row):
    """(parameters by position, keyword-only ones) of a recorded row; None if it takes anything."""
    items = row.split()
    if any(item.startswith("*") and item != "*" for item in items):
        return None
    plain, _, keywords = row.partition("* ") if "* " in f"{row} " else (row, "", "")
    return [item.rstrip("=") for item in plain.split()], [item.rstrip("=") for item in keywords.split()]


def required(name, span):
    if span.startswith("0.1") and name in REQUIRED:
        return REQUIRED[name]
    return sum(not item.endswith("=") for item in SIGNATURES[name][span].partition("* ")[0].split())


def takes_anything(function):
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    return {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds


def renamed(name, span):
    """{parameter: what 0.5 calls it} of the row of ORDERS that covers these versions."""
    home = next((key for key in ORDERS if resolved(key) is resolved(name)), None)
    row = next(
        (
            order
            for versions, order in ORDERS.get(home, {}).items()
            if versions[:3] <= span[:3] <= versions[-3:]
        ),
        "",
    )
    return {old: new for old, renames, new in (item.partition("=") for item in row.split()) if renames}


CASES = [(name, span) for name, spans in SIGNATURES.items() if name not in ABSENT for span in spans]


@pytest.mark.parametrize("name, span", CASES, ids=lambda value: value)
def test_calls_of_every_version_reach_their_parameters(name, span):
    function, row = resolved(name), SIGNATURES[name][span]
    parameters = parameters_of(row)
    if parameters is None or name in OTHERS or not callable(function):  # a data type was a class in 0.2
        return
    if function is torch.device or takes_anything(function):
        return
    instance = (object(),) if is_method(name) and inspect.isfunction(function) else ()
    plain, keywords = parameters
    names = SAME_MEANING.get(name, {}) | renamed(name, span)
    for count in range(required(name, span), len(plain) + 1):
        values = {p: SAMPLE_OF.get(p, object()) for p in plain[:count]}
        bound = bound_arguments(function, (*instance, *values.values()), {})
        flat = {p: v for p, v in bound.items() if not isinstance(v, dict)}
        for parameter, value in values.items():
            assert not names.get(parameter, parameter) or any(
                flat.get(p) is value for p in {names.get(parameter, parameter), parameter}
            ), f"{name}({', '.join(plain[:count])}) of {span}: {parameter} did not arrive, {flat}"
    by_keyword = {p: SAMPLE_OF.get(p, object()) for p in [*plain, *keywords]}
    bound_arguments(function, instance, by_keyword)


def test_every_function_is_there_or_listed_as_removed():
    for name in SIGNATURES:
        if name in ABSENT:
            with pytest.raises(AttributeError):
                resolved(name)
        else:
            assert resolved(name) is not None
    assert set(SIGNATURES) >= ABSENT


def test_every_row_of_orders_is_a_recorded_order():
    """A row of the table stands for a recorded signature, and its function takes it."""
    for name, rows in ORDERS.items():
        function = resolved(name)
        assert getattr(function.__init__ if isinstance(function, type) else function, "older_orders", None), (
            f"{name} does not take its older orders"
        )
        aliases = [alias for alias in SIGNATURES if alias not in ABSENT and resolved(alias) is function]
        recorded = [
            parameters_of(row)[0]
            for alias in aliases
            for row in SIGNATURES[alias].values()
            if parameters_of(row)
        ]
        for row in rows.values():
            order = [item.partition("=")[0] for item in row.split()]
            assert any(order[: len(r)] == r or order == r for r in recorded), (
                f"{name}: {order} is not recorded"
            )


def test_kinds_belong_to_parameters_that_decide():
    parameters = [parameter for names in KINDS.values() for parameter in names.split()]
    assert len(parameters) == len(set(parameters))
    used = {p for name in ORDERS for p in inspect.signature(resolved(name)).parameters} | {
        item.partition("=")[0] for rows in ORDERS.values() for row in rows.values() for item in row.split()
    }
    assert set(parameters) <= used


def test_defaults_are_those_of_0_5():
    """Recorded rows say which parameters have a default."""
    for name, spans in SIGNATURES.items():
        row = spans.get(next((span for span in spans if span.endswith("0.5")), ""), None)
        if (
            row is None
            or name in ABSENT
            or parameters_of(row) is None
            or name.startswith(("typing.", "nn.Module"))
        ):
            continue
        function = resolved(name)
        try:
            signature = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        for item in row.replace("* ", "").split():
            parameter = signature.get(item.rstrip("="))
            if (
                parameter is not None
                and parameter.kind is not parameter.VAR_POSITIONAL
                and item.endswith("=")
            ):
                assert parameter.default is not parameter.empty, f"{name}: {item} had a default"


X = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("api", [flow, oneflow], ids=["single_client", "oneflow"])
@pytest.mark.parametrize(
    "older, newer",
    [
        (
            lambda f, x, w: f.nn.conv2d(x, w, 2, "SAME", "NCHW", 1, 1, "conv"),
            lambda f, x, w: f.nn.conv2d(x, w, 2, "SAME", None, "NCHW", 1, 1, "conv"),
        ),
        (
            lambda f, x, w: f.nn.conv2d(x, w, [1, 1], "VALID", "NCHW", [2, 2]),
            lambda f, x, w: f.nn.conv2d(x, w, 1, "VALID", dilations=2),
        ),
        (
            lambda f, x, w: f.nn.max_pool2d(x, 2, 2, "VALID", "NCHW", "pool"),
            lambda f, x, w: f.nn.max_pool2d(x, 2, 2, "VALID"),
        ),
        (lambda f, x, w: f.sort(x, "DESCENDING"), lambda f, x, w: f.sort(x, direction="DESCENDING")),
        (
            lambda f, x, w: f.argsort(x, "DESCENDING", "sorted"),
            lambda f, x, w: f.argsort(x, -1, "DESCENDING"),
        ),
        (lambda f, x, w: f.math.top_k(x, 5, True)[:], lambda f, x, w: f.math.top_k(x, k=5)[:]),
        (lambda f, x, w: f.math.argmax(x, "largest"), lambda f, x, w: f.math.argmax(x, -1)),
        (lambda f, x, w: f.math.tril(x, 1, "low"), lambda f, x, w: f.math.tril(x, 1)),
        (lambda f, x, w: f.concat([x, x], 1, "joined"), lambda f, x, w: f.concat(inputs=[x, x], axis=1)),
        (
            lambda f, x, w: f.matmul(x, x, False, True, "product"),
            lambda f, x, w: f.matmul(x, x, transpose_b=True),
        ),
        (
            lambda f, x, w: f.transpose(x, [0, 2, 3, 1], False, "nhwc"),
            lambda f, x, w: f.transpose(x, perm=[0, 2, 3, 1]),
        ),
        (
            lambda f, x, w: f.layers.upsample_2d(x, (2, 2), "NCHW", "bilinear"),
            lambda f, x, w: f.layers.upsample_2d(x, 2, False, "NCHW", "bilinear"),
        ),
        (lambda f, x, w: f.math.reduce_max(input_tensor=x, axis=1), lambda f, x, w: f.math.reduce_max(x, 1)),
        (lambda f, x, w: f.nn.dropout(x, None, None, "drop", 0.5), lambda f, x, w: f.nn.dropout(x, 0.5)),
        (lambda f, x, w: f.hierarchical_parallel_cast(x, parallel_distribution=["B"]), lambda f, x, w: x),
        (
            lambda f, x, w: f.quantization.min_max_observer(x, 8, "symmetric", False),
            lambda f, x, w: f.quantization.min_max_observer(x, per_layer_quantization=False),
        ),
    ],
    ids=lambda value: None,
)
def test_older_call_gives_what_the_newer_one_gives(api, older, newer):
    result, reference = (result_of_job(functools.partial(call, api), X, W) for call in (older, newer))
    for a, b in zip(*(r if isinstance(r, (list, tuple)) else [r] for r in (result, reference)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_get_variable_takes_the_orders_of_0_3_and_0_4():
    one = flow.ones_initializer()

    def body():
        a = flow.get_variable(
            "a", (2,), flow.float, one, None, True, None, None, flow.distribute.broadcast(), True
        )
        b = flow.get_variable("b", shape=(2,), initializer=one, parallel_distribution=["B"])
        c = flow.get_variable(
            "c", (2,), flow.float, one, None, True, None, None, ["B"], flow.distribute.broadcast(), True
        )
        return a + b + c

    np.testing.assert_array_equal(result_of_job(body), [3.0, 3.0])
    with pytest.raises(ValueError, match="reuse is False"):
        result_of_job(
            lambda: [
                flow.get_variable("d", (1,), flow.float, one, None, True, None, None, None, False)
                for _ in range(2)
            ]
        )


def test_initializers_of_modules_take_their_layout_by_position():
    for name, options in (("kaiming_normal_", (0, "fan_in", "relu")), ("xavier_uniform_", (1.0,))):
        torch.manual_seed(0)
        by_position = getattr(flow.nn.init, name)(torch.empty(4, 3, 3, 3), *options, "NCHW")
        torch.manual_seed(0)
        assert torch.equal(by_position, getattr(flow.nn.init, name)(torch.empty(4, 3, 3, 3), *options))


def test_a_call_that_fits_no_order_fails_as_it_would_in_0_5():
    with pytest.raises(TypeError):
        result_of_job(lambda x, w: flow.nn.conv2d(x, w), X, W)
    with pytest.raises(TypeError):
        result_of_job(lambda x, w: flow.nn.conv2d(x, w, 1, "SAME", bias=None, filter=w), X, W)

"""Programs that set modes of torch: autocast, inference, devices, kernels.

The graph follows, or a warning named it.
"""

import torch
from hostile_cases import verdict
from torch import nn

import oneflow as flow


def test_attribute_of_a_torch_function_mode_is_followed():
    class M(torch.overrides.TorchFunctionMode):
        k = 2.0

        def __torch_function__(s, f, t, a=(), k=None):
            r = f(*a, **k or {})
            return r * s.k if f is torch.relu else r

    def build(x):
        with M():
            return torch.relu(x)

    assert verdict(build, lambda: setattr(M, "k", 3.0)) == "followed"


def test_torch_function_mode_around_the_call(request):
    class M(torch.overrides.TorchFunctionMode):
        def __torch_function__(s, f, t, a=(), k=None):
            r = f(*a, **k or {})
            return r * 2 if f is torch.relu else r

    m = M()
    request.addfinalizer(lambda: m.__exit__(None, None, None))
    assert verdict(lambda x: torch.relu(x), m.__enter__) == "followed"


def test_default_device_is_followed(request):
    request.addfinalizer(lambda: torch.set_default_device(None))
    assert (
        verdict(
            lambda x: x * (2.0 if torch.get_default_device().type == "cpu" else 3.0),
            lambda: torch.set_default_device("meta"),
        )
        == "followed"
    )


def test_autocast_that_build_asks_for(request):
    cm = torch.autocast("cpu", dtype=torch.bfloat16)
    request.addfinalizer(lambda: cm.__exit__(None, None, None))
    assert (
        verdict(lambda x: x * (3.0 if torch.is_autocast_enabled("cpu") else 2.0), cm.__enter__) == "followed"
    )


def test_dtype_of_autocast_that_build_asks_for(request):
    old = torch.get_autocast_dtype("cpu")
    request.addfinalizer(lambda: torch.set_autocast_dtype("cpu", old))
    assert (
        verdict(
            lambda x: x * (3.0 if torch.get_autocast_dtype("cpu") is torch.float16 else 2.0),
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
        )
        == "followed"
    )


def test_dtype_of_autocast_inside_build_is_followed(request):
    m = nn.Linear(4, 4)
    old = torch.get_autocast_dtype("cpu")

    def build(x):
        with torch.autocast("cpu"):
            return m(x).float()

    request.addfinalizer(lambda: torch.set_autocast_dtype("cpu", old))
    assert verdict(build, lambda: torch.set_autocast_dtype("cpu", torch.float16), m) == "followed"


def test_cache_of_autocast_is_followed(request):
    request.addfinalizer(lambda: torch.set_autocast_cache_enabled(True))
    assert (
        verdict(
            lambda x: x * (2.0 if torch.is_autocast_cache_enabled() else 3.0),
            lambda: torch.set_autocast_cache_enabled(False),
        )
        == "followed"
    )


def test_inference_mode_that_build_asks_for(request):
    cm = torch.inference_mode()
    request.addfinalizer(lambda: cm.__exit__(None, None, None))
    assert (
        verdict(lambda x: x * (3.0 if torch.is_inference_mode_enabled() else 2.0), cm.__enter__) == "followed"
    )


def test_grad_mode_that_build_asks_for(request):
    cm = torch.no_grad()
    request.addfinalizer(lambda: cm.__exit__(None, None, None))
    assert verdict(lambda x: x * (2.0 if torch.is_grad_enabled() else 3.0), cm.__enter__) == "followed"


def test_deterministic_debug_mode_is_followed(request):
    request.addfinalizer(lambda: torch.set_deterministic_debug_mode(0))
    assert (
        verdict(
            lambda x: x * (1.0 + torch.get_deterministic_debug_mode()),
            lambda: torch.set_deterministic_debug_mode(1),
        )
        == "followed"
    )


def test_kernels_of_attention_are_followed(request):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    cm = sdpa_kernel(SDPBackend.MATH)
    request.addfinalizer(lambda: cm.__exit__(None, None, None))
    assert (
        verdict(lambda x: x * (2.0 if torch.backends.cuda.flash_sdp_enabled() else 3.0), cm.__enter__)
        == "followed"
    )


class Multiplies(torch.overrides.TorchFunctionMode):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        return result * self.factor if function is torch.relu else result


def test_another_torch_function_mode_around_the_call(request):
    entered = [Multiplies(2.0)]
    entered[0].__enter__()
    request.addfinalizer(lambda: entered[0].__exit__(None, None, None))

    def change():
        entered[0].__exit__(None, None, None)
        entered[0] = Multiplies(3.0)
        entered[0].__enter__()

    assert verdict(torch.relu, change) == "followed"


def test_equal_torch_function_modes_make_one_program():
    class Relu(flow.nn.Graph):
        def build(self, x):
            return torch.relu(x)

    graph, x = Relu(), torch.ones(2)
    for _ in range(3):
        with Multiplies(2.0):
            assert torch.equal(graph(x), x * 2)
    assert len(graph._engine.programs) == 1

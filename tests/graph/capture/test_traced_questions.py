"""User code that asks whether its tensors are traced gets the answers of eager mode in build()."""

import builtins
import warnings

import pytest
import torch
from graph_cases import graph_of
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, is_fake
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

QUESTIONS = {
    "isinstance": lambda x: isinstance(x, FakeTensor),
    "one of several classes": lambda x: isinstance(x, (int, (torch.fx.Proxy, FakeTensor))),
    "union": lambda x: isinstance(x, FakeTensor | int),
    "union with Tensor": lambda x: isinstance(x, FakeTensor | torch.Tensor),
    "another class": lambda x: isinstance(x, torch.FloatTensor),
    "is_fake": lambda x: is_fake(x),
    "is_fake of torch": lambda x: torch._subclasses.fake_tensor.is_fake(x),
    "detect_fake_mode": lambda x: detect_fake_mode([x]) is not None,
    "dispatch mode": lambda x: _get_current_dispatch_mode() is not None,
    "dispatch modes": lambda x: len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()) > 0,
    "function mode": lambda x: torch.overrides._get_current_function_mode() is not None,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_eagers(question):
    ask = QUESTIONS[question]

    def step(x):
        return [x * (2 if answer else 3) for answer in (ask(x), ask(x + 1))]

    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = graph_of(step)
        for expected, actual in zip(step(x), graph(x), strict=True):
            assert torch.equal(expected, actual)
    assert isinstance is builtins.isinstance and type(isinstance) is type(len)


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_the_mode_is_the_callers():
    with Nothing() as mode:
        asked = []
        graph_of(lambda x: (asked.append(_get_current_dispatch_mode()), x)[1])(torch.ones(2))
    assert asked == [mode]


def test_a_question_of_transformers_that_the_user_calls_has_the_answer_of_eager():
    """The models of transformers themselves get the true answer."""
    import_utils = pytest.importorskip("transformers.utils.import_utils")
    asked = []

    def step(x):
        asked.append(import_utils.is_tracing(x))
        asked.append(import_utils.is_fake_tensor(x))
        library = {"__name__": "transformers.masking", "is_tracing": import_utils.is_tracing}
        code = compile("answer = lambda x: is_tracing(x)", import_utils.__file__, "exec")
        exec(code, library)
        asked.append(library["answer"](x))
        return x

    graph_of(step)(torch.ones(2))
    assert asked == [False, False, True]

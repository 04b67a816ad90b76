"""get_rng_state, set_rng_state and manual_seed in build() become part of the program: recomputation replays
dropout with them.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...._active import capturing
from ...errors import CAPTURED_AGAIN, ReadNotFollowed
from ...program.random_functions import (
    get_cpu_state,
    get_cuda_state,
    seed_all,
    seed_cpu,
    seed_cuda,
    seed_every_cuda,
    seed_generator,
    set_cpu_state,
    set_cuda_state,
)
from ...program.tensor_info import describe
from .patching import Replacements, patched_attributes

if TYPE_CHECKING:
    from ..recorder import Recorder


class _Recorded:
    """Calls of generators in the program: each reads, sets or seeds the state that the generator has when the
    program runs.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def record(self, function: Callable[..., Any], *args: Any) -> Any:
        node = self.recorder.graph.call_function(function, args)
        self.recorder._annotate(node)
        return node

    def node(self, state: Any) -> Any:
        return self.recorder._convert(state)[0]

    def read(self, original: Any, function: Any, *args: Any) -> Any:
        """A symbolic tensor like the state that `original()` gives now."""
        with _disable_current_modes():
            value = original()
            out: Any = self.recorder.fake_mode.from_tensor(value, static_shapes=True)
        out._of_node = self.record(function, *args)
        out._of_node.meta["tensor"] = describe(value)
        return out

    def getting(self, original: Any, function: Any, arguments_of: Any) -> Any:
        def get(*args: Any, **kwargs: Any) -> Any:
            if not capturing():
                return original(*args, **kwargs)
            return self.read(lambda: original(*args, **kwargs), function, *arguments_of(*args, **kwargs))

        return get

    def doing(self, original: Callable[..., Any], function: Callable[..., Any], arguments_of: Any) -> Any:
        def do(*args: Any, **kwargs: Any) -> Any:
            if not capturing():
                return original(*args, **kwargs)
            self.record(function, *arguments_of(*args, **kwargs))

        return do


class _Generator:
    """Stand in for the CPU's generator: torch's functions for it end here, under every name."""

    def __init__(self, generator: Any, recorded: Any) -> None:
        self._generator, self._recorded = generator, recorded
        self._seed: int | None = None  # the seed that build() has set
        self._is_set = False  # whether build() has changed it in another way since

    def get_state(self) -> Any:
        return (
            self._recorded.read(self._generator.get_state, get_cpu_state)
            if capturing()
            else self._generator.get_state()
        )

    def set_state(self, state: Any) -> Any:
        if not capturing():
            return self._generator.set_state(state)
        self._is_set = True
        self._recorded.record(set_cpu_state, self._recorded.node(state))

    def manual_seed(self, seed: Any) -> Any:
        if not capturing():
            return self._generator.manual_seed(seed)
        if isinstance(seed, torch.Tensor):
            self._is_set = True
            self._recorded.record(seed_cpu, self._recorded.node(seed))
        else:
            self._seed, self._is_set = int(seed), False
            self._recorded.record(seed_all, seed)
        return self._generator

    def initial_seed(self) -> int:
        if not capturing() or self._seed is None and not self._is_set:
            seed: int = self._generator.initial_seed()
            return seed
        if self._is_set or self._seed is None:
            raise ReadNotFollowed(
                "build() sets the state of torch's generator, and then asks for its seed",
                "Ask for the seed first.",
            )
        return self._seed % (1 << 64)  # torch gives a negative seed in the same way

    def seed(self) -> int:
        if capturing():
            raise ReadNotFollowed(
                "build() seeds torch's generator by a number that is another one in each call",
                "Call torch.manual_seed(), or seed outside.",
            )
        seed: int = self._generator.seed()
        return seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


@contextlib.contextmanager
def states_of_generators(recorder: Recorder) -> Iterator[Replacements]:
    """Record the generator functions of the CPU and of CUDA devices while build() is captured.

    It yields the replacements of those of CUDA.
    """
    recorded = _Recorded(recorder)
    rows = (
        ("get_rng_state", recorded.getting, get_cuda_state, lambda device="cuda": (_index(device),)),
        (
            "set_rng_state",
            recorded.doing,
            set_cuda_state,
            lambda new_state, device="cuda": (recorded.node(new_state), _index(device)),
        ),
        (
            "manual_seed",
            recorded.doing,
            seed_cuda,
            lambda seed: (int(seed), _index("cuda") if torch.cuda.is_available() else None),
        ),
        ("manual_seed_all", recorded.doing, seed_every_cuda, lambda seed: (int(seed),)),
    )
    replacements = {
        name: (getattr(torch.cuda, name), make(getattr(torch.cuda, name), function, arguments))
        for name, make, function, arguments in rows
    }
    generator = _Generator(torch.random.default_generator, recorded)
    with patched_attributes([(torch.random, "default_generator", generator)]):
        yield replacements


@contextlib.contextmanager
def python_samples(name: str, sampler: str, ends_capture: bool) -> Iterator[None]:
    """Notice if `sampler`, build() or an optimizer, samples from Python's or NumPy's generator.

    The program would have the same values in every call, which a warning says. `ends_capture`: raise, and
    put the generators back, because the call runs in eager mode.
    """
    before = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
        sources = [] if random.getstate() == before[0] else ["Python's random module"]
        if not _same_state(before[1]["state"]):
            sources.append("NumPy's generator")
        if sources and ends_capture:
            raise ReadNotFollowed(
                f"{sampler} samples from {' and '.join(sources)}",
                "Sample with torch (torch.rand, torch.randint), and the numbers are part of the program.",
            )
    except CAPTURED_AGAIN:
        random.setstate(before[0])
        np.random.set_state(before[1])
        raise
    if sources:
        instead = "Step the optimizer in eager mode."
        if sampler == "build()":
            instead = (
                "Sample them with torch (torch.rand, torch.randint), or outside of build() and pass them as"
                " tensors."
            )
        warnings.warn(
            f"graph {name}: {sampler} samples from {' and '.join(sources)}. These numbers are sampled once,"
            f" and are constants of the program. {instead}",
            stacklevel=2,
        )


def _same_state(before: Any) -> Any:
    now = np.random.get_state(legacy=False)["state"]
    return now.keys() == before.keys() and all(np.array_equal(now[k], v) for k, v in before.items())


def _index(device: Any) -> Any:
    index = device if isinstance(device, int) else torch.device(device).index
    return torch.cuda.current_device() if index is None else index


# -- what the program calls ----------------------------------------------------------


# ---- A torch.Generator made in build() begins anew at every call, as it does in eager mode; one made outside
# keeps drawing.


def generators_of_build(recorder: Recorder, active: Callable[..., Any]) -> Replacements:
    """Return the class that records torch.Generator(...) and its seeds while build() is captured."""
    original = torch.Generator

    def record(generator: Any, seed: Any) -> None:
        recorder._annotate(recorder.graph.call_function(seed_generator, (generator, int(seed))))

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, value: Any) -> Any:
            return isinstance(value, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __init__(self, device: Any = "cpu") -> None:
            if active():
                record(self, self.initial_seed())

        def manual_seed(self, seed: Any) -> Any:
            if active():
                record(self, seed)
            return original.manual_seed(self, seed)

    return {"Generator": (original, Generator)}

"""Graph.debug(): what is printed while a program is made, and the record of module calls behind
print(graph).
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ... import _processes
from ..._active import capturing
from ..._env import is_set
from ..._errors import RefusedType, StateError
from ..._graph import global_hook
from .graph_repr import LeafText, module_lines, named_leaves, tensor_line
from .graph_scope import Views
from .job_message.program import operator_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..._graph import Explanation, Program
    from .graph_members import GraphMembers
    from .graph_repr import Leaves, ModuleCalls


class Debug:
    """Verbosity of one graph: 0 stages and times, 1 each module with its tensors, 2 each operator, 3 code
    locations.
    """

    def __init__(
        self,
        v_level: int = -1,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        self.set(v_level, ranks, max_py_stack_depth, only_user_py_stack, op_repr_with_py_stack)

    def set(
        self,
        v_level: int = -1,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        if isinstance(v_level, bool) or not isinstance(v_level, int):
            raise RefusedType(f"debug(v_level): a whole number from -1 to 3, found {v_level!r}")
        if v_level > 3:
            raise ValueError(f"debug(v_level): the highest level is 3, found {v_level}")
        if v_level < -1:
            raise StateError(f"debug(v_level): the lowest level is -1, found {v_level}")
        ranks = [0] if ranks is None else [ranks] if isinstance(ranks, int) else ranks
        if not isinstance(ranks, (list, tuple)):
            raise ValueError(f"debug(ranks): a rank or a list of ranks, found {ranks!r}")
        on = -1 in ranks or _processes.get_rank() in ranks
        self.level = v_level if on else -1
        self.depth, self.only_user = max_py_stack_depth, only_user_py_stack
        self.location = self.level >= 3 or op_repr_with_py_stack

    def __bool__(self) -> bool:
        return self.level >= 0

    def say(self, level: int, message: str) -> None:
        if self.level >= level:
            print(message, flush=True)


class _Calls:
    """The inputs and outputs of each module called in build(): {name: (inputs, outputs)}, each a list
    [(label, text)].
    """

    def __init__(self, graph: GraphMembers, views: Views) -> None:
        self.debug, self.views = graph._debug, views
        self.calls: ModuleCalls = {}
        self.names = {
            id(m): f"{prefix}.{n}" if n else prefix
            for prefix, block in graph._blocks.items()
            for n, m in block._origin.named_modules()
        }

    def note(
        self,
        tag: str,
        label: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        lazy: bool = True,
    ) -> Leaves:
        leaves = [(n, LeafText(v, lazy=lazy)) for n, v in named_leaves(label, args, kwargs)]
        if self.debug.level >= 1:
            for n, leaf in leaves:
                print(f"({tag}:{n}:{leaf})", flush=True)
        return leaves

    def name_of(self, module: torch.nn.Module) -> str | None:
        """The name of a module of the graph that build() calls; another thread may call the same module."""
        return self.names.get(id(module)) if capturing() else None

    def before(self, module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        name = self.name_of(module)
        if name is None:
            return
        self.views.enter(module)
        if self.debug.level >= 1:
            print(f"(MODULE:{name}:{type(module).__name__}({module.extra_repr()}))", flush=True)
        self.calls[name] = self.note("INPUT", f"{name}_input", inputs), ()
        if self.debug.level >= 1:
            for tag, tensors in (("PARAMETER", module._parameters), ("BUFFER", module._buffers)):
                for n, t in tensors.items():
                    if t is not None:
                        print(tensor_line(tag, f"{name}.{n}", t))

    def after(self, module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        name = self.name_of(module)
        if name is not None:
            self.views.leave()
            self.calls[name] = (
                self.calls.get(name, ((), ()))[0],
                self.note("OUTPUT", f"{name}_output", (output,)),
            )


def record(
    graph: GraphMembers, build: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run build() and record the inputs and outputs of the graph and of every module in it. Print them if
    requested.
    """
    debug, title = graph._debug, f"(GRAPH:{graph.name}:{type(graph).__name__})"
    views = Views(graph)
    calls = _Calls(graph, views)
    begin = time.perf_counter()
    debug.say(0, f"{title} start building graph.")
    ins = calls.note("INPUT", f"{graph.name}_input", args, kwargs, lazy=False)
    hooks, before, after = torch.nn.modules.module, calls.before, calls.after
    with (
        global_hook(hooks.register_module_forward_pre_hook, hooks._global_forward_pre_hooks, before),
        global_hook(hooks.register_module_forward_hook, hooks._global_forward_hooks, after, always_call=True),
        views,
    ):
        try:
            out = build(*args, **kwargs)
        except BaseException:
            debug.say(0, f"[ERROR]{title} building graph got error.")
            raise
    calls.calls[""] = ins, calls.note("OUTPUT", f"{graph.name}_output", (out,))
    graph._calls.clear()  # another dict would be a change of the graph by build()
    graph._calls.update(calls.calls)
    debug.say(0, f"{title} building graph Done! Cost time: {time.perf_counter() - begin:.2f}s.")
    return out


def on_change(graph: GraphMembers) -> Callable[[Explanation], None]:
    """Print at level 1 why another program is made."""
    return lambda explanation: graph._debug.say(1, f"(GRAPH:{graph.name}) another program: {explanation}")


def on_stage(graph: GraphMembers) -> Callable[[str, float, Program | None], None]:
    """Report one stage of the engine: times at level 0, every operator at level 2."""

    def report(stage: str, seconds: float, program: Program | None) -> None:
        debug, title = graph._debug, f"(GRAPH:{graph.name}:{type(graph).__name__})"
        debug.say(0, f"{title} {stage} Done! Cost time: {seconds:.2f}s.")
        if program is not None and stage.startswith("compile") and debug.level >= 2:
            operators = operator_lines(program, graph._calls, debug.location)
            print(f"{graph.name} with operators:")
            for name, block in graph._blocks.items():
                print("\n".join(module_lines(block._origin, name, graph._calls, operators)))
            print("\n".join(operators.get("", ())), flush=True)

    return report


# --------------------------------------------------------------------------- rates
class RateLog:
    """log/HOST/PID-train_step2lr.csv under the working directory; each graph begins the file anew at its
    first call.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._group = optimizer.param_groups[0]
        self._path = Path("log", platform.node(), f"{os.getpid()}-train_step2lr.csv").absolute()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("train_step, lr\n")
        self._step = 0

    def rate(self) -> float:
        """Return the rate of the next step."""
        return float(self._group["lr"])

    def write(self, rate: float) -> None:
        """Add the line of a step."""
        with self._path.open("a") as file:
            file.write(f"{self._step}, {rate:f}\n")
        self._step += 1


def rate_log(graph: GraphMembers) -> RateLog | Literal[False]:
    """Return the RateLog of a graph with an optimizer under ONEFLOW_DEBUG_MODE, else False."""
    return RateLog(graph._opts[0][0]) if graph._opts and is_set("ONEFLOW_DEBUG_MODE") else False

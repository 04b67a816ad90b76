"""class Graph: a build() over modules and optimizers, run as one compiled program by the engine."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from ... import _graph
from ..._errors import RefusedType, StateError, unsupported
from ..._global.failures import is_lost, lost
from ..._graph import Config, capturing, explained, fold, inside_another, of_samplers, sparse_rows
from ..._ops.core import get_dialect
from .graph_config import GraphConfig
from .graph_debug import Debug, on_change, on_stage, rate_log, record
from .graph_internals import GraphCache, GraphInternals, checked_size
from .graph_repr import graph_text
from .proxy import ProxyModule
from .storage.stored_graph import StoredGraph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.nn import Module

    from ..._graph import Engine, Program
    from .graph_members import GraphMembers
else:
    GraphMembers = object


class Graph(StoredGraph, GraphInternals, GraphMembers):
    """Subclass it: assign modules and call add_optimizer in __init__, write the step in build(), call the
    object.

    Programs are made per input signature at the first call with it; train() or eval() before that call
    decides. `config` has the options (GraphConfig). The arguments debug_* are those of debug();
    enable_get_runtime_state_dict is accepted, runtime_state_dict() is always possible. An error in build()
    leaves weights, optimizer and random state as they were.
    """

    config: GraphConfig
    _child_init_cnt: Counter[str] = Counter()
    _dynamic = False  # made with_dynamic_input_shape

    def __init__(
        self,
        *,
        enable_get_runtime_state_dict: bool = False,
        debug_v_level: int = -1,
        debug_ranks: int | Sequence[int] | None = None,
        debug_max_py_stack_depth: int = 2,
        debug_only_user_py_stack: bool = True,
        debug_op_repr_with_py_stack: bool = False,
    ) -> None:
        """Start an empty graph. A subclass calls this first, then assigns its modules."""
        class_name = type(self).__name__
        index = Graph._child_init_cnt[class_name]
        Graph._child_init_cnt[class_name] += 1
        options = Config(on_stage=on_stage(self), on_change=on_change(self))
        vars(self).update(  # __setattr__ needs _blocks
            _blocks={},
            _opts=[],
            _grad_scaler=None,
            _name=f"{class_name}_{index}",
            config=GraphConfig(options),
            _steps=0,
            _rate_log=None,  # created, or found unnecessary, at the first call
            _calls={},
            _loaded=None,
            _debug=Debug(
                debug_v_level,
                debug_ranks,
                debug_max_py_stack_depth,
                debug_only_user_py_stack,
                debug_op_repr_with_py_stack,
            ),
        )
        self.config._graph = weakref.ref(self)
        vars(self)["_engine"] = self._new_engine(options)

    def _new_engine(self, options: Config) -> Engine:
        @functools.wraps(self.build)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            return record(self, self.build, args, kwargs)

        # the engine is loaded with the first graph, because most programs that import nn do not need it
        definition = _graph.GraphDefinition(
            recorded,
            modules=lambda: {name: block._origin for name, block in self._blocks.items()},
            optimizers=self._opts,
            grad_scaler=lambda: self._grad_scaler,
            recompute=self._recomputed,
            stages=self._staged,
            name=self._name,
            unrecorded=lambda *args, **kwargs: self.build(*args, **kwargs),
            owner=self,
            writes_through=lambda: get_dialect() == "torch",
        )
        return _graph.Engine(definition, options)

    # -- for users to write -----------------------------------------------------------
    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what a call of the graph returns. A subclass overrides it; else NotImplementedError."""
        raise NotImplementedError(
            f"{type(self).__name__} does not override build(): write the computation of the graph there"
        )

    # -- setting up ---------------------------------------------------------------------
    def add_optimizer(
        self,
        optim: torch.optim.Optimizer,
        *,
        lr_sch: torch.optim.lr_scheduler.LRScheduler | None = None,
        is_sparse: bool = False,
    ) -> None:
        """Step this optimizer (and then its lr schedule) at the end of each call.

        is_sparse: a weight whose gradient comes from one embedding, index_select or gather, and that has no
        L2 decay, changes only in the rows with a gradient; so do its momentum and moments.

        TypeError unless the arguments are an optimizer and a scheduler. NotImplementedError for LBFGS, whose
        step() needs a closure. ValueError if the optimizer was added before. AssertionError if the scheduler
        belongs to another optimizer.
        """
        _check_optimizer(optim, lr_sch)
        if any(optim is added for added, _ in self._opts):
            raise ValueError(
                f"add_optimizer: this {type(optim).__name__} was added to graph {self._name} already; added"
                " twice it would step twice in each call"
            )
        self._before_first_call("add_optimizer")
        _attach_embeddings(optim)
        (sparse_rows.lazy.add if is_sparse else sparse_rows.lazy.discard)(optim)
        self._opts.append((optim, lr_sch))
        self.config._train = True

    def set_grad_scaler(self, grad_scaler: torch.amp.GradScaler | None = None) -> None:
        """Scale the loss with this GradScaler or StaticGradScaler; None: with none.

        TypeError for any other object.
        """
        if not isinstance(grad_scaler, (torch.amp.GradScaler, type(None))):
            raise RefusedType(
                "set_grad_scaler takes an oneflow.amp.GradScaler or StaticGradScaler, found"
                f" {type(grad_scaler).__name__} {grad_scaler!r}"
            )
        self._before_first_call("set_grad_scaler")
        object.__setattr__(self, "_grad_scaler", grad_scaler)

    def _before_first_call(self, what: str) -> None:
        if self.is_compiled:
            raise StateError(
                f"{what} was asked for after the first call of graph {self._name}; it is possible only"
                " before it"
            )

    def _fixed(self, option: str) -> bool:
        """Return True, with a warning, if it is too late to change this option."""
        if self.is_compiled:
            warnings.warn(
                f"{option} was set after the first call of graph {self._name} and stays as it was: options"
                " are for __init__",
                stacklevel=3,
            )
        return self.is_compiled

    # -- running ------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled program for these arguments; capture and compile it first if there is none
        yet."""
        if capturing():
            raise inside_another()
        if self._loaded is not None:
            return self._loaded(*args, **kwargs)
        log = self._rate_log
        if log is None:
            log = self.__dict__["_rate_log"] = rate_log(self)
        rate = log and log.rate()
        engine = self._engine
        try:
            out = engine.call(args, kwargs)
        except Exception as error:
            if isinstance(error, RuntimeError) and is_lost(error):
                raise lost(f"graph {self._name}", error) from error
            fold(error)
            raise
        self.__dict__["_steps"] += 1
        if log:
            log.write(rate)
        return out

    def build_graph(self, *args: Any, **kwargs: Any) -> None:
        """Capture and compile for these arguments without running."""
        if self._engine.eager_calls.unobserved is not None:
            self._engine.eager_calls.begin()
            return
        try:
            self._engine.compile(*args, **kwargs)
        except Exception as error:
            fold(error)
            raise

    _compile = build_graph

    def finish_compile_and_init_runtime(self) -> None:
        """Nothing is left to do after build_graph()."""

    finish_complie_and_init_runtime = finish_compile_and_init_runtime

    @staticmethod
    def trace(func: Callable[..., Any]) -> Graph:
        """Decorator: the function as the build() of a graph; calling the result runs the compiled program.

        TypeError unless the argument is a function.
        """
        if not callable(func):
            raise TypeError(f"Graph.trace takes a function, found {func!r}")
        graph = type(getattr(func, "__name__", "Traced"), (Graph,), {"build": staticmethod(func)})()
        functools.update_wrapper(graph, func, updated=())
        return graph

    @staticmethod
    def with_dynamic_input_shape(
        *, size: int = 10, enable_shared: bool = True
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorator of a graph's __init__: keep compiled programs for up to `size` different input shapes
        (weights are always shared).
        """
        checked_size(size)

        def decorate(init: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(init)
            def wrapped(self: Graph, *args: Any, **kwargs: Any) -> None:
                init(self, *args, **kwargs)
                GraphCache(self, size, enable_shared)
                object.__setattr__(self, "_dynamic", True)

            return wrapped

        return decorate

    def enable_shared(self, mode: bool = True) -> None:
        """Accepted: every program of a graph shares the live weights already."""

    def share_from(self, shared_graph: Graph) -> None:
        """Use the modules' tensors of `shared_graph`; both graphs must hold the same modules under the same
        names.

        TypeError unless the argument is a graph. ValueError if the modules or their parameters differ.
        """
        self._before_first_call("share_from")
        if not isinstance(shared_graph, Graph):
            raise TypeError(f"share_from takes a graph, found {type(shared_graph).__name__}")
        mine, theirs = ({n: b._origin for n, b in g._blocks.items()} for g in (self, shared_graph))
        if mine.keys() != theirs.keys():
            raise ValueError(
                f"share_from: this graph has the modules {sorted(mine)}, the other {sorted(theirs)}"
            )
        for name in mine:
            block = theirs[name]
            if [n for n, _ in block.named_parameters()] != [n for n, _ in mine[name].named_parameters()]:
                raise ValueError(f"share_from: module {name!r} has other parameters in the other graph")
            for (path, module), (_, source) in zip(mine[name].named_modules(), block.named_modules()):
                module._parameters.update(source._parameters)
                module._buffers.update(source._buffers)

    # -- seeing and keeping -----------------------------------------------------------------
    def debug(
        self,
        v_level: int = -1,
        *,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """Print while a program is made: 0 stages and times, 1 each module, 2 each operator, 3 code
        locations; -1 nothing.
        """
        self._debug.set(v_level, ranks, max_py_stack_depth, only_user_py_stack, op_repr_with_py_stack)

    def explain(self) -> str:
        """Return the programs of this graph with the sizes they serve, what was compared with the captured
        operators and when, and what needed more programs.

        For example, the line of build() that uses a size as a Python number.
        """
        engine = self._engine
        if engine.eager_calls.unobserved is not None:
            return engine.eager_calls.reason
        own_samplers = of_samplers(engine.programs, engine.config.backend_options)
        explanations = [*engine.assumptions.explanations, *own_samplers]
        return explained(self._name, engine.programs, explanations, engine.proofs)

    def __repr__(self) -> str:
        """Return the modules, settings and arguments of the graph as OneFlow prints them."""
        return graph_text(self)

    @property
    def program(self) -> Program | None:
        """The Program last run; None before the first call."""
        return self._engine.program

    @property
    def is_compiled(self) -> bool:
        """Whether the graph was called or built with build_graph(). Modules, optimizers and options are fixed
        from then on.
        """
        engine = self._engine
        return engine.program is not None or engine.eager_calls.has_begun or self._loaded is not None

    _is_compiled = is_compiled

    @property
    def name(self) -> str:
        """The class's name and the number of the graph among its graphs."""
        return self._name

    @property
    def training(self) -> bool:
        """True once an optimizer was added."""
        return self.config.training

    # -- modules ------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any = None) -> None:
        if "_blocks" not in self.__dict__:
            raise AttributeError(
                f"call super().__init__() before assigning {name!r} in {type(self).__name__}.__init__"
            )
        if isinstance(value, torch.nn.Module):
            self._before_first_call(f"assigning module {name!r}")
            self._blocks[name] = ProxyModule(value, "", name, self)
        else:
            self._blocks.pop(name, None)
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if self._blocks.pop(name, None) is None:
            object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:
        blocks = self.__dict__.get("_blocks")
        if blocks is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}: call super().__init__() first in its __init__"
            )
        if name in blocks:
            return blocks[name]
        hint = ""
        if not name.startswith("_") and hasattr(torch.nn.Module, name):
            hint = f": a graph is no module; use {name} of the module that was given to the graph"
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}{hint}")

    def _staged(self) -> list[_graph.StagedModule]:
        """Return the modules whose blocks have a pipeline stage."""
        proxies = [proxy for block in self._blocks.values() for proxy in block._proxies()]
        blocks = [(proxy._origin, proxy.config) for proxy in proxies]
        return [
            _graph.StagedModule(
                module, f"{block.name_prefix}{block.name}", block.stage_id, block.stage_placement
            )
            for module, block in blocks
            if block.stage_id is not None
        ]

    def _recomputed(self) -> list[Module]:
        return [
            p._origin
            for block in self._blocks.values()
            for p in block._proxies()
            if p.config.activation_checkpointing
        ]


def _check_optimizer(optim: object, lr_sch: object) -> None:
    """Raise the errors of add_optimizer() that do not depend on the graph."""
    if not isinstance(optim, torch.optim.Optimizer):
        description = (
            f"the class {optim.__name__}"
            if isinstance(optim, type)
            else f"a value of type {type(optim).__name__}"
        )
        raise RefusedType(
            f"add_optimizer takes an optimizer, got {description}; pass an instance, as"
            " flow.optim.SGD(model.parameters(), lr=0.1)"
        )
    if isinstance(optim, torch.optim.LBFGS):
        raise unsupported(
            "add_optimizer with LBFGS, whose step() computes the loss several times,",
            "graph-optimizers",
            "Call optimizer.step(closure) outside of a graph, or in a function under flow.compile_step, which"
            " runs it in eager mode; or use another optimizer.",
        )
    if lr_sch is not None and not callable(getattr(lr_sch, "step", None)):
        raise TypeError(
            f"add_optimizer(lr_sch=) takes a learning rate scheduler, got {type(lr_sch).__name__}; pass"
            " an instance, as flow.optim.lr_scheduler.StepLR(optimizer, step_size=10)"
        )
    if getattr(lr_sch, "optimizer", optim) is not optim:
        raise StateError(
            f"add_optimizer(lr_sch=): this {type(lr_sch).__name__} belongs to another optimizer than the"
            f" {type(optim).__name__} passed with it; construct the scheduler with that optimizer"
        )


def _attach_embeddings(optim: torch.optim.Optimizer) -> None:
    """Let the graph update the rows of the one_embedding tables that the optimizer holds."""
    embeddings: set[Any] = {
        getattr(p, "_one_embedding", None) for group in optim.param_groups for p in group["params"]
    } - {None}
    if embeddings:
        from ...one_embedding.registry import live  # embeddings load on demand

        for embedding in embeddings:
            live(embedding).attach(optim, in_graph=True)


def _left_alone_by_dynamo(function: Callable[..., Any]) -> None:
    """Exclude the function and everything it calls from dynamo. If torch.compile traces the surrounding code,
    it makes the call unchanged.
    """
    dynamo = torch._C._dynamo.eval_frame
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    if not all(
        hasattr(dynamo, name) for name in ("set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction")
    ):
        return  # a torch with another frame hook, where graphs run in eager mode
    dynamo.set_code_exec_strategy(
        function.__code__, dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
    )


_left_alone_by_dynamo(Graph.__call__)

"""A dispatch mode that writes every ATen call into an fx graph while tensors stay symbolic.

Operators are recorded below autograd and in the order eager runs them, in-place ones included, so that
running the graph in order is exactly what eager does. Real tensors met on the way (parameters, state,
closures) are lifted to placeholders; they keep their identity, so hooks and `p.grad` work as usual.
"""

import contextlib
import operator
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.node import Argument
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..._global.marks import is_global
from ..._global.program_results import mark_like, wrappers
from ..._signals import run_waiting_handlers
from ..errors import CaptureError, user_location
from ..guards.conditions import Condition
from ..program import node_editing
from ..program.live_numbers import LiveNumber, live_number, need_sizes
from ..program.memory import view_of
from ..program.operators import (
    ASSERTIONS,
    communicates,
    facts_of,
    has_new_results,
    written_argument,
    written_returns,
)
from ..program.symbolic import SYMBOLIC_NUMBERS
from ..program.tensor_info import describe
from .interfaces import Lifted, RecordedTensor
from .patches.recurrent_layers import whole_layers
from .patches.view_layouts import CopiedViews
from .rank_facts import call_log, note_collective
from .results.fake_results import Results
from .results.refusals import name_dtype, refuse_collective, refuse_marker, refuse_unrecordable
from .results.symbolic_results import symbolic_results, with_eager_dtypes
from .twins import twin_of, twin_of_argument, without_marks
from .values.dynamic_dimensions import DynamicDimensions
from .values.known import KnownValues
from .values.symbolic_sizes import Sizes
from .written_lists import calls_of_apart

aten = torch.ops.aten
_ITEM = aten._local_scalar_dense.default
_DEVICE = torch.ops.prim.device.default
_CUDNN_CTC = {aten._use_cudnn_ctc_loss.default, aten._use_cudnn_ctc_loss.Tensor}


class Recorder(KnownValues, TorchDispatchMode):
    """The recorder of one capture. It writes into `graph`.

    `lifted` maps id(real tensor) -> (tensor, node, symbolic twin).
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the base class would wrap __torch_dispatch__ and import torch._dynamo

    def __init__(self, fake_mode: FakeTensorMode | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = Graph()
        self.fake_mode = fake_mode or FakeTensorMode(allow_non_fake_inputs=True)
        self.fake_mode.cache_enabled = False  # torch's cache is slower than ours (fake_results.py)
        self.default_dtype = torch.get_default_dtype()
        self.histories: list[Any] = []  # nodes of autograd of tensors that were there before the capture
        self.results = Results(self.fake_mode)
        self.sizes = Sizes(self)
        self.dynamic: DynamicDimensions | None = None  # if some dimensions of arguments are symbols
        self.lifted: dict[int, Lifted] = {}
        # get_attr target -> real tensor made of Python data inside build()
        self.constants: dict[str, torch.Tensor] = {}
        self.markers: dict[float, object] = {}  # see update/host_scalars.py
        self.marker_values: dict[float, float] = {}
        self.module_path = ""
        self.regions: tuple[str, ...] = ()  # names that record_function() has opened
        self.recomputing = False
        self.phase = "forward"
        self.micro_batch: int | None = None  # the one that build() computes, if there are several
        # memory layout of a lifted tensor -> (node, twin), so that p.data is p
        self.twins: dict[Hashable, tuple[Node, RecordedTensor]] = {}
        self.copied = CopiedViews(self)
        self.valued: dict[int, RecordedTensor] = {}  # memory -> constant tensor in it, until it is written
        # while the update is recorded: tensor of one element -> its marker
        self.scalar_of: Callable[[torch.Tensor], float] | None = None
        self.guards: list[Condition] = []  # conditions under which the program serves a call
        self.recurrent: list[Any] = []  # see patches/recurrent_layers.py
        self.on_lift: Callable[[torch.Tensor], None] | None = None  # called with each real tensor lifted
        # the results of operators, see side_effects/survivors.py
        self.fakes: list[weakref.ref[RecordedTensor]] = []
        # whether .item() of a floating tensor gives a number of the program, and those that it gave
        self.gives_numbers = False
        self.numbers: list[weakref.ref[LiveNumber]] = []
        self.calls = call_log(self)  # the calls that the ranks compare
        self._first: Node | None = None  # placeholders go before this node
        self.unfolds = wrappers()  # classes of tensors that call operators of their own, which are recorded

    # -- inputs ---------------------------------------------------------------
    def placeholder(self, name: str, value: torch.Tensor | float) -> Node:
        """A new placeholder node; placeholders stay in front of every other node."""
        graph = self.graph
        if self._first is None:
            self._first = graph.call_function(len, ((),))  # removed in finish()
        with graph.inserting_before(self._first):
            node = graph.placeholder(name)
        node.meta["value"] = value
        return node

    def symbolic(self, tensor: torch.Tensor, name: str) -> RecordedTensor:
        """A symbolic twin of an argument, with its own placeholder."""
        dynamic = self.dynamic
        layout = dynamic.shape_and_stride(tensor, name) if dynamic is not None else None
        with torch._C.DisableTorchFunction():
            twin = twin_of_argument(self.fake_mode, tensor, layout)
        twin._of_node = self.placeholder(name, tensor)
        self.fakes.append(weakref.ref(twin))
        twin._of_node.meta["tensor"] = describe(tensor if layout is None else twin)
        if dynamic is not None and layout is not None:
            dynamic.define(twin._of_node, twin)
        if is_global(tensor):
            twin._of_placement, twin._of_sbp = tensor._of_placement, tensor._of_sbp
        if tensor.requires_grad:
            twin.requires_grad_()
        return twin

    def lift(self, tensor: torch.Tensor) -> tuple[Node, RecordedTensor]:
        """Return (node, twin) of a real tensor met inside the capture."""
        lifted = self.lifted.get(id(tensor))
        if lifted is not None:
            return lifted[1], lifted[2]
        if self.on_lift is not None:
            self.on_lift(tensor)
        if tensor.grad_fn is not None:
            self.histories.append(tensor.grad_fn)
        view = view_of(tensor)
        entry = self.twins.get(view)
        if entry is None:
            entry = self.twins[view] = self._new_twin(tensor)
        self.lifted[id(tensor)] = (tensor, *entry)
        return entry

    def _new_twin(self, tensor: torch.Tensor) -> tuple[Node, RecordedTensor]:
        node = self.placeholder("t", tensor)
        node.meta["tensor"] = describe(tensor)
        marked = hasattr(tensor, "_of_placement")
        with torch._C.DisableTorchFunction() if marked else contextlib.nullcontext():
            twin = twin_of(self.fake_mode, without_marks(tensor) if marked else tensor)
        twin._of_node = node
        if is_global(tensor):
            twin._of_placement, twin._of_sbp = tensor._of_placement, tensor._of_sbp
        if tensor.numel() == 1 and self.phase == "update":
            with _disable_current_modes():  # an optimizer that reads it by item() is not in the mode's hands
                twin._value = tensor.detach().clone()
        return node, twin

    # -- the mode --------------------------------------------------------------
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # backward() leaves function modes on the stack: pop them while the operator is recorded
        modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
        try:
            return self._dispatch(func, types, args, kwargs or {})
        finally:
            for mode in reversed(modes):
                torch._C._push_on_torch_function_stack(mode)

    def _dispatch(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.unfolds and any(issubclass(t, self.unfolds) for t in types):
            return NotImplemented
        if func is _DEVICE:
            return _device_of(args[0])
        if self.copied.written_row is not None and (has_new_results(func) or func._schema.is_mutable):
            self.copied.check_row()
        if func is _ITEM:
            return self._item(args[0])
        if func.namespace in ("profiler", "prim"):
            return self._run_unrecorded(func, args, kwargs)
        run_waiting_handlers()
        facts = facts_of(func)
        refuse_unrecordable(func, facts, args, is_update=self.phase == "update")
        if func in _CUDNN_CTC:
            return False  # cuDNN's CTC reads the lengths; torch's own kernel does for every input
        if facts.lifts and not isinstance(args[0], RecordedTensor):
            return self._constant(args[0])
        return self._record_all(func, args, kwargs)

    def _record_all(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an operator, in several calls if its tensors share memory. Return the last result."""
        if self.unfolds and communicates(func):
            note_collective(self.calls, func, args)
        elif self.unfolds and func.namespace == "c10d":
            refuse_collective(func)
        if func is aten.where.self and args[0].dtype is torch.uint8:  # the fake kernel takes bools only
            args = self._record(aten.ne.Scalar, (args[0], 0), {}), *args[1:]
        out = None
        for call in calls_of_apart(func, args, kwargs):
            out = self._record(func, *call)
        return out

    def _run_unrecorded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of the profiler, and note the region that record_function() opens or closes."""
        if func.namespace == "profiler":
            self.regions = (*self.regions, args[0]) if "enter" in func._schema.name else self.regions[:-1]
        return func(*args, **kwargs)

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Write one call of an operator into the graph, and return its symbolic results."""
        if func._schema.is_mutable and (self.phase != "update" or self.copied.has_rows):
            self.copied.check_write(func, args, kwargs)
        if self.numbers:
            need_sizes(func, args, kwargs)
        node_args, fake_args = self._convert_all(args)
        node_values, fake_values = self._convert_all(kwargs.values())
        node_kwargs, fake_kwargs = dict(zip(kwargs, node_values)), dict(zip(kwargs, fake_values))
        node = node_editing.call(self.graph, func, node_args, node_kwargs)
        out = symbolic_results(self, func, node, fake_args, fake_kwargs)
        out = with_eager_dtypes(self.fake_mode, func, fake_args, out)
        if torch.get_default_dtype() is not self.default_dtype:
            name_dtype(node, func, (*fake_args, *fake_values), out)
        self._annotate(node)
        result = self._bind(func, node, out, args, kwargs)
        mark_like(result, (*fake_args, *fake_values))
        if self.phase == "update":
            self._follow(func, fake_args, fake_kwargs, out)
        elif func._schema.is_mutable:
            self._forget_values(fake_args)
        return result

    def _bind(self, func: Any, node: Node, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Give each result its node, and return what build() gets: for a written argument, the argument."""
        written = written_returns(func)
        if isinstance(out, torch.Tensor):
            return self._bind_tensor(
                node, out, written_argument(written[0] if written else None, args, kwargs)
            )
        if isinstance(out, (tuple, list)):
            node.meta["tensor"] = None
            is_list = len(written) == 1 and isinstance(func._schema.returns[0].type, torch.ListType)
            targets = [] if is_list else [written_argument(w, args, kwargs) for w in written]
            targets += [None] * (len(out) - len(targets))
            results = [self._bind_item(node, *item) for item in zip(range(len(out)), out, targets)]
            return type(out)(results) if type(out) in (tuple, list) else out
        if not (func._schema.is_mutable or func in ASSERTIONS):  # a size, a flag: python data
            self.graph.erase_node(node)
        return out

    def _bind_item(self, node: Node, index: Any, item: Any, target: Any) -> Any:
        """Bind one of several results, which may be a list: the gradients of all weights."""
        if isinstance(item, torch.Tensor):
            return self._bind_tensor(self.graph.call_function(operator.getitem, (node, index)), item, target)
        if type(item) is not list:
            return item
        listed = self.graph.call_function(operator.getitem, (node, index))
        listed.meta["tensor"] = None
        return [self._bind_item(listed, i, tensor, None) for i, tensor in enumerate(item)]

    def _bind_tensor(self, node: Any, out: Any, target: Any) -> Any:
        """Bind a result. `target` is the argument that the operator wrote and returns, or None."""
        node.meta["tensor"] = describe(out)
        if type(out) is RecordedTensor and out._has_symbolic_sizes_strides:
            self.sizes.define(node, out)
        if type(out) is not RecordedTensor and id(out) in self.lifted:  # see hold()
            return out
        if isinstance(target, torch.Tensor):
            if type(target) is RecordedTensor:
                bound = getattr(target, "_of_node", None)
                if bound is not None and bound.meta["tensor"] != node.meta["tensor"]:
                    target._of_node = node  # squeeze_() and the like: another shape from here on
            return target
        if getattr(out, "_of_node", None) is not None:  # the operator gave back its argument
            return out
        out._of_node = node
        self.fakes.append(weakref.ref(out))
        return out

    def _convert_all(self, args: Any) -> Any:
        pairs = [self._convert(a) for a in args]
        return tuple(node for node, _ in pairs), tuple(fake for _, fake in pairs)

    def _convert(self, a: Any) -> Any:
        """Return (what the graph gets, what the symbolic operator gets) of an argument."""
        value_type = type(a)
        if value_type is RecordedTensor:
            return self._node_of(a), a
        if isinstance(a, torch.Tensor):
            scalar = getattr(a, "_wrapped_number", None)
            return self.lift(a) if scalar is None else self._convert_number(scalar)
        if value_type is float:
            return self.markers.get(a, a), a
        if value_type in SYMBOLIC_NUMBERS:
            return self._convert_number(a)
        if value_type is list or value_type is tuple:
            return self._convert_list(a)
        return a, a

    def _convert_number(self, a: Any) -> tuple[Any, ...]:
        """Return the same of a number that each run computes, from sizes or from options of optimizers."""
        live = live_number(a)
        return (self.sizes.node(a), a) if live is None else (live.node, live.sample)

    def _convert_list(self, values: Any) -> tuple[Any, ...]:
        has_tensors = bool(values) and isinstance(values[0], (torch.Tensor, float, type(None)))
        if not has_tensors and not any(type(v) in SYMBOLIC_NUMBERS for v in values):
            return list(values), list(values)
        pairs = [self._convert(v) for v in values]
        return [node for node, _ in pairs], [fake for _, fake in pairs]

    def _node_of(self, tensor: RecordedTensor) -> Node:
        node: Node | None = getattr(tensor, "_of_node", None)
        if node is None or tensor.fake_mode is not self.fake_mode:
            raise CaptureError(
                "a symbolic tensor of an earlier capture was used: it was kept by a module, a list or a"
                " closure",
                "Do not keep tensors made inside build() in python objects; return them, or copy them into a"
                " buffer in place.",
            )
        return node

    def _constant(self, tensor: torch.Tensor) -> RecordedTensor:
        """Return a symbolic tensor for a tensor that build() makes of Python data."""
        constant = self._constant_node(tensor.detach().clone())
        node = self.graph.call_function(aten.clone.default, (constant,))
        node.meta["tensor"] = describe(tensor)
        self._annotate(node)
        shape, stride = tuple(tensor.shape), tensor.stride()
        out: RecordedTensor
        with self.fake_mode:
            out = torch.empty_strided(  # type: ignore[assignment]  # fake in this mode
                shape, stride, dtype=tensor.dtype, device=tensor.device
            )
        out._of_node = node
        self.fakes.append(weakref.ref(out))
        out._value = tensor.detach().clone()
        self.valued[out.untyped_storage()._cdata] = out
        return out

    def hold(self, tensor: torch.Tensor) -> None:
        """Keep a real tensor as itself inside the capture; it is a constant of the program."""
        twin = twin_of(self.fake_mode, tensor)
        twin._of_node = self._constant_node(tensor)
        self.lifted[id(tensor)] = (tensor, twin._of_node, twin)

    def _constant_node(self, tensor: torch.Tensor) -> Node:
        refuse_marker(tensor, self.markers)
        name = f"constant{len(self.constants)}"
        self.constants[name] = tensor
        node = self.graph.create_node("get_attr", name)
        node.meta["tensor"] = describe(tensor)
        return node

    def _annotate(self, node: Node) -> None:
        node.meta["phase"] = self.phase
        if self.micro_batch is not None:
            node.meta["micro_batch"] = self.micro_batch
        if self.recomputing:
            node.meta["recomputed"] = True
        node.meta["location"] = user_location(2)
        node.meta["module"] = self.module_path
        if self.regions:
            node.meta["regions"] = self.regions

    # -- the end ----------------------------------------------------------------
    def finish(self, outputs: Sequence[Argument]) -> Graph:
        """Close the graph; `outputs` is a flat list of nodes and plain values."""
        if self._first is not None:
            self.graph.erase_node(self._first)
            self._first = None
        self.graph.output(tuple(outputs))
        self.sizes.drop_tests()
        whole_layers(self)
        if self.sizes.nodes:
            self.sizes.reshape_when_run()
        return self.graph

    def release(self) -> None:
        """Drop the tensors of the capture.

        Symbolic sizes keep the recorder alive as long as the program, and an error of build() keeps it as
        long as the error.
        """
        for tensors in (self.lifted, self.twins, self.valued, self.recurrent):
            tensors.clear()
        self.constants = {}  # a program keeps the dict itself
        self.histories.clear()
        self.on_lift = None
        del self.calls  # the functions in it refer to this object
        for node in self.graph.find_nodes(op="placeholder"):
            node.meta.pop("value", None)


def _device_of(tensor: torch.Tensor) -> torch.device:
    if type(tensor) is RecordedTensor:
        return tensor.fake_device
    return torch.device("cpu") if tensor.is_cpu else tensor.device

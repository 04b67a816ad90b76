"""A dispatch mode that writes every ATen call into an fx graph while tensors stay symbolic.

Operators are recorded below autograd and in the order eager runs them, in-place ones included, so that
running the graph in order is exactly what eager does. Real tensors met on the way (parameters, state,
closures) are lifted to placeholders; they keep their identity, so hooks and `p.grad` work as usual.
"""

from __future__ import annotations

import contextlib
import operator
import weakref

import torch
import torch.fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..._global.tensor import mark_like, wrappers
from ..errors import CaptureError, UnsupportedInGraph, user_location
from ..program.operators import facts_of
from ..program.scalar_guards import Condition
from ..program.symbolic import SYMBOLIC_NUMBERS
from ..program.tensor_info import describe
from .fake_results import Results
from .known import KnownValues
from .recurrent import whole_layers
from .refusals import refuse
from .sparse_results import of_any_rows
from .symbolic_sizes import Sizes

aten = torch.ops.aten
_ITEM = aten._local_scalar_dense.default
_DEVICE = torch.ops.prim.device.default
_CUDNN_CTC = {aten._use_cudnn_ctc_loss.default, aten._use_cudnn_ctc_loss.Tensor}
_returns_cache: dict = {}


def _written_returns(func):
    """Return the (position, name) of the written argument that each result of an operator is.

    The entry is None for a result that is no written argument.
    """
    written_arguments = _returns_cache.get(func)
    if written_arguments is None:
        schema = func._schema
        written_arguments = []
        for ret in schema.returns:
            alias = ret.alias_info
            argument_key = None
            if alias is not None and alias.is_write:
                for position, arg in enumerate(schema.arguments):
                    if (
                        arg.alias_info is not None
                        and arg.alias_info.is_write
                        and arg.alias_info.before_set & alias.before_set
                    ):
                        argument_key = (position, arg.name)
                        break
            written_arguments.append(argument_key)
        written_arguments = _returns_cache[func] = tuple(written_arguments)
    return written_arguments


class Recorder(KnownValues, TorchDispatchMode):
    """Records into `graph`. `lifted` maps id(real tensor) -> (tensor, node, symbolic twin)."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # the base class would wrap __torch_dispatch__ and import torch._dynamo

    def __init__(self, fake_mode: FakeTensorMode | None = None):
        super().__init__()
        self.graph = torch.fx.Graph()
        self.fake_mode = fake_mode or FakeTensorMode(allow_non_fake_inputs=True)
        self.results = Results(self.fake_mode)
        self.sizes = Sizes(self)
        self.dynamic = None  # DynamicDimensions, if some dimensions of arguments are symbols
        self.lifted: dict = {}
        self.constants: dict = {}  # get_attr target -> real tensor made of python data inside build
        self.markers: dict = {}  # see host_scalars.py
        self.marker_values: dict = {}
        self.module_path = ""
        self.regions: tuple = ()  # what record_function() has opened
        self.recomputing = False
        self.phase = "forward"
        self.known = {}  # (storage, layout) -> real tensor already lifted, so that p.data is p
        self.valued = {}  # memory -> constant tensor in it, until it is written
        self.number_of = None  # while the update is recorded: one-number tensor -> its marker
        self.guards: list[Condition] = []  # what must hold for the program to serve a call
        self.recurrent: list = []  # see recurrent.py
        self.on_lift = None  # called with each real tensor lifted
        self.fakes: list = []  # weak references to the results of operators, see survivors.py
        self._first = None  # placeholders go before this node
        self.unfolds = wrappers()  # classes of tensors that call operators of their own, which are recorded

    # -- inputs ---------------------------------------------------------------
    def placeholder(self, name, value):
        """A new placeholder node; placeholders stay in front of every other node."""
        graph = self.graph
        if self._first is None:
            self._first = graph.call_function(len, ((),))  # removed in finish()
        with graph.inserting_before(self._first):
            node = graph.placeholder(name)
        node.meta["value"] = value
        return node

    def symbolic(self, tensor, name):
        """A symbolic twin of an argument, with its own placeholder."""
        layout = self.dynamic.shape_and_stride(tensor, name) if self.dynamic is not None else None
        with torch._C.DisableTorchFunction():
            twin = self._twin_of_argument(tensor, layout)
        twin._of_node = self.placeholder(name, tensor)
        self.fakes.append(weakref.ref(twin))
        twin._of_node.meta["tensor"] = describe(tensor if layout is None else twin)
        if layout is not None:
            self.dynamic.define(twin._of_node, twin)
        if hasattr(tensor, "_of_placement"):
            twin._of_placement, twin._of_sbp = tensor._of_placement, tensor._of_sbp
        if tensor.requires_grad:
            twin.requires_grad_()
        return twin

    def _twin_of_argument(self, tensor, layout):
        """A symbolic tensor like an argument, of this (shape, strides) if some dimensions are symbols."""
        if layout is not None:
            with self.fake_mode:
                return torch.empty_strided(*layout, dtype=tensor.dtype, device=tensor.device)
        twin = (
            self._twin(tensor)
            if tensor.is_inference()
            else self.fake_mode.from_tensor(_plain(tensor), static_shapes=True)
        )
        if twin is tensor:
            raise CaptureError(
                "build() was given a tensor of another capture", "Call the graph with ordinary tensors."
            )
        return of_any_rows(twin.detach() if hasattr(twin, "_of_node") else twin)

    def lift(self, tensor):
        """(node, twin) of a real tensor met inside the capture."""
        found = self.lifted.get(id(tensor))
        if found is not None:
            return found[1], found[2]
        if self.on_lift is not None:
            self.on_lift(tensor)
        layout = None
        if tensor.layout is torch.strided:
            layout = (
                tensor.untyped_storage()._cdata,
                tensor.dtype,
                tuple(tensor.shape),
                tensor.stride(),
                tensor.storage_offset(),
            )
            same = self.known.get(layout)
            if same is not None:
                self.lifted[id(tensor)] = (tensor, same[0], same[1])
                return same
        node = self.placeholder("t", tensor)
        node.meta["tensor"] = describe(tensor)
        marked = hasattr(tensor, "_of_placement")
        with torch._C.DisableTorchFunction() if marked else contextlib.nullcontext():
            twin = self._twin(_plain(tensor) if marked else tensor)
        twin._of_node = node
        if marked:
            twin._of_placement, twin._of_sbp = tensor._of_placement, tensor._of_sbp
        if tensor.numel() == 1 and self.phase == "update":
            with (
                _disable_current_modes()
            ):  # an optimizer that reads it first, by item(), is not in the mode's hands
                twin._value = tensor.detach().clone()
        self.lifted[id(tensor)] = (tensor, node, twin)
        if layout is not None:
            self.known[layout] = (node, twin)
        return node, twin

    def _twin(self, tensor):
        """A symbolic tensor like a real one.

        Memory shared between real tensors need not be shared by their twins.
        """
        if tensor.layout is torch.strided and not (
            tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
        ):
            with self.fake_mode:
                return torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
                )
        return of_any_rows(self.fake_mode.from_tensor(tensor, static_shapes=True))

    # -- the mode --------------------------------------------------------------
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        modes = [
            torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())
        ]  # from backward, which leaves them on
        try:
            return self._dispatch(func, types, args, kwargs)
        finally:
            for mode in reversed(modes):
                torch._C._push_on_torch_function_stack(mode)

    def _dispatch(self, func, types, args, kwargs):
        if self.unfolds and any(issubclass(t, self.unfolds) for t in types):
            return NotImplemented
        if func is _DEVICE:
            tensor = args[0]
            return (
                tensor.fake_device
                if type(tensor) is FakeTensor
                else torch.device("cpu")
                if tensor.is_cpu
                else tensor.device
            )
        if func is _ITEM:
            return self._item(args[0])
        facts = facts_of(func)
        if (
            facts.counts_sparse_rows
            and self.phase == "update"
            and type(args[0]) is FakeTensor
            and args[0].layout is not torch.strided
        ):
            raise UnsupportedInGraph(
                "the number of distinct rows of a sparse gradient is needed (coalesce), and it depends on"
                " values",
                "graph-optimizers",
                "Use an optimizer that adds sparse gradients as they are (SGD), or an embedding with"
                " sparse=False.",
            )
        if func.namespace == "profiler":
            self.regions = (*self.regions, args[0]) if "enter" in func._schema.name else self.regions[:-1]
        if func.namespace in ("profiler", "prim"):
            return func(*args, **(kwargs or {}))
        if facts.refusal is not None:
            refuse(func, facts.refusal, args)
        if func in _CUDNN_CTC:
            return False  # cuDNN's CTC reads the lengths; torch's own kernel does for every input
        if facts.lifts and not isinstance(args[0], FakeTensor):
            return self._constant(args[0])
        node_args, fake_args = self._convert_all(args)
        if kwargs:
            names = list(kwargs)
            node_kw, fake_kw = self._convert_all(tuple(kwargs.values()))
            node_kw, fake_kw = dict(zip(names, node_kw)), dict(zip(names, fake_kw))
        else:
            node_kw, fake_kw = {}, {}
        node = self.graph.call_function(func, node_args, node_kw)
        out = self._symbolic_results(func, node, fake_args, fake_kw)
        if facts.statistics and fake_args[0].device.type == "cpu":
            out = self._with_float_statistics(func, fake_args, out)
        elif func is aten._pack_padded_sequence.default and type(out[1]) is FakeTensor:
            with self.fake_mode:
                out = (
                    out[0],
                    out[1].long(),
                )  # torch's symbolic form gives the numbers of rows the dtype of the data
        self._annotate(node)
        result = self._bind(func, node, out, args, kwargs)
        mark_like(result, (*fake_args, *fake_kw.values()))
        if self.phase == "update":
            self._follow(func, fake_args, fake_kw, out)
        elif func._schema.is_mutable:
            self._forget_values(fake_args)
        return result

    def _symbolic_results(self, func, node, args, kwargs):
        try:
            return self.results(func, args, kwargs) if facts_of(func).has_fake_kernel else None
        except (DynamicOutputShapeException, DataDependentOutputException):
            from .branch_values import known_shape

            ways = [
                lambda: known_shape(self, func, node, args),
                lambda: self._of_unknown_size(func, args, kwargs),
            ]
            out = next(
                (o for o in (way() for way in (ways[::-1] if self.sizes.vary else ways)) if o is not None),
                None,
            )
            if out is None:
                self.graph.erase_node(node)
                raise CaptureError(
                    f"{func} gives a tensor whose shape depends on values, and has no symbolic form for that",
                    "Use a form with a fixed shape, or compute that part outside the graph.",
                ) from None
            return out
        except BaseException:
            self.graph.erase_node(node)
            raise

    def _of_unknown_size(self, func, args, kwargs):
        self.sizes.begin()
        try:
            return self.results(func, args, kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            return None

    def _with_float_statistics(self, func, args, out):
        given = next((args[i].dtype for i in facts_of(func).statistics if args[i] is not None), args[0].dtype)
        if given == args[0].dtype:
            return out
        with self.fake_mode:
            return out[0], *(t.to(torch.float32) for t in out[1:])

    def _bind(self, func, node, out, args, kwargs):
        places = _written_returns(func)
        if isinstance(out, torch.Tensor):
            return self._bind_one(node, out, places[0] if places else None, args, kwargs)
        if isinstance(out, (tuple, list)):
            node.meta["tensor"] = None
            results = []
            listed = (
                len(places) == 1
                and len(out) >= 1
                and isinstance(func._schema.returns[0].type, torch._C.ListType)
            )
            for i, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    place = None if listed or i >= len(places) else places[i]
                    part = self.graph.call_function(operator.getitem, (node, i))
                    results.append(self._bind_one(part, item, place, args, kwargs))
                elif type(item) is list:  # one of several results is a list: the gradients of all weights
                    part = self.graph.call_function(operator.getitem, (node, i))
                    part.meta["tensor"] = None
                    results.append(
                        [
                            self._bind_one(
                                self.graph.call_function(operator.getitem, (part, j)), t, None, args, kwargs
                            )
                            for j, t in enumerate(item)
                        ]
                    )
                else:
                    results.append(item)
            return type(out)(results) if type(out) in (tuple, list) else out
        if not func._schema.is_mutable:  # a size, a flag: python data
            self.graph.erase_node(node)
        return out

    def _bind_one(self, node, out, written_argument, args, kwargs):
        node.meta["tensor"] = describe(out)
        if type(out) is FakeTensor and out._has_symbolic_sizes_strides:
            self.sizes.define(node, out)
        if type(out) is not FakeTensor and id(out) in self.lifted:  # held
            return out
        if written_argument is not None:
            position, name = written_argument
            target = args[position] if position < len(args) else (kwargs or {}).get(name)
            if isinstance(target, torch.Tensor):
                if (
                    type(target) is FakeTensor
                    and getattr(target, "_of_node", None) is not None
                    and target._of_node.meta["tensor"] != node.meta["tensor"]
                ):
                    target._of_node = node  # squeeze_() and the like: another shape from here on
                return target
        if getattr(out, "_of_node", None) is not None:  # the operator gave back its argument
            return out
        out._of_node = node
        self.fakes.append(weakref.ref(out))
        return out

    def _convert_all(self, args):
        node_args, fake_args = [], []
        for a in args:
            n, f = self._convert(a)
            node_args.append(n)
            fake_args.append(f)
        return tuple(node_args), tuple(fake_args)

    def _convert(self, a):
        value_type = type(a)
        if value_type is FakeTensor:
            node = getattr(a, "_of_node", None)
            if node is None or a.fake_mode is not self.fake_mode:
                node = self._unknown(a)
            return node, a
        if isinstance(a, torch.Tensor):
            number = getattr(a, "_wrapped_number", None)
            return self.lift(a) if number is None else (self.sizes.node(number), number)
        if value_type is float:
            node = self.markers.get(a)
            return (a, a) if node is None else (node, a)
        if value_type in SYMBOLIC_NUMBERS:
            return self.sizes.node(a), a
        if value_type is list or value_type is tuple:
            if (
                a
                and isinstance(a[0], (torch.Tensor, float, type(None)))
                or any(type(x) in SYMBOLIC_NUMBERS for x in a)
            ):
                pairs = [self._convert(x) for x in a]
                return [p[0] for p in pairs], [p[1] for p in pairs]
            return list(a), list(a)
        return a, a

    def _unknown(self, tensor):
        raise CaptureError(
            "a symbolic tensor of an earlier capture was used: it was kept by a module, a list or a closure",
            "Do not keep tensors made inside build() in python objects; return them, or copy them into a"
            " buffer in place.",
        )

    def _constant(self, tensor):
        name = f"constant{len(self.constants)}"
        self.constants[name] = tensor.detach().clone()
        source = self.graph.create_node("get_attr", name)
        source.meta["tensor"] = describe(tensor)
        node = self.graph.call_function(aten.clone.default, (source,))
        node.meta["tensor"] = describe(tensor)
        self._annotate(node)
        with self.fake_mode:
            out = torch.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
        out._of_node = node
        self.fakes.append(weakref.ref(out))
        out._value = tensor.detach().clone()
        self.valued[out.untyped_storage()._cdata] = out
        return out

    def hold(self, tensor):
        """A real tensor that stays itself inside the capture; a constant of the program."""
        name = f"constant{len(self.constants)}"
        self.constants[name] = tensor
        node = self.graph.create_node("get_attr", name)
        node.meta["tensor"] = describe(tensor)
        twin = self._twin(tensor)
        twin._of_node = node
        self.lifted[id(tensor)] = (tensor, node, twin)

    def _annotate(self, node):
        node.meta["phase"] = self.phase
        if self.recomputing:
            node.meta["recomputed"] = True
        node.meta["location"] = user_location(2)
        node.meta["module"] = self.module_path
        if self.regions:
            node.meta["regions"] = self.regions

    # -- the end ----------------------------------------------------------------
    def finish(self, outputs):
        """Close the graph; `outputs` is a flat list of nodes and plain values."""
        if self._first is not None:
            self.graph.erase_node(self._first)
            self._first = None
        self.graph.output(tuple(outputs))
        whole_layers(self)
        if self.sizes.nodes:
            self.sizes.reshape_when_run()
        return self.graph

    def release(self):
        """Drop the tensors of the capture. Symbolic sizes keep the recorder alive as long as the program."""
        for tensors in (self.lifted, self.known, self.valued, self.recurrent):
            tensors.clear()


def _plain(tensor):
    """The memory of a global tensor as an ordinary tensor; another tensor without its history."""
    tensor = tensor.detach()
    return tensor.as_subclass(torch.Tensor) if hasattr(tensor, "_of_placement") else tensor

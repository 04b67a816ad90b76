"""view() in build() of a tensor whose memory has no such view.

The tensors of OneFlow's graphs are contiguous. As in eager mode, a computed tensor is laid out row by row, so
that its view shares its memory:

    y = x.t() + 1        %y = add(%t, 1)
    y.view(-1)           %clone = clone(%y, contiguous);  %view = view(%clone, [-1])

Arguments, parameters and buffers keep their layout. A copy stands for their view, and a write that the other
tensor would have to show is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...._active import capturing
from ...._global.views import view_or_copy
from ...._method import plain_method
from ...._ops.tensor.row_major import RowMajorLayout, row_major_layout
from ...errors import CaptureError, ViewsNeeded
from ...program.operators import is_written
from ..interfaces import RecordedTensor
from .patching import patched

if TYPE_CHECKING:
    from ..interfaces import RecorderInterface

_data: Any = torch.Tensor.data  # build() gets a `data` that copies


@contextlib.contextmanager
def views_of_any_layout(recorder: RecorderInterface) -> Iterator[None]:
    """Let view() and view_as() in build() take a tensor of any layout."""

    def take(method: Callable[..., Any]) -> Callable[..., Any]:
        original = plain_method(method)
        lenient = view_or_copy(original)

        def view(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            if not capturing():
                return method(tensor, *args, **kwargs)  # type: ignore[no-any-return]
            try:
                return original(tensor, *args, **kwargs)  # type: ignore[no-any-return]
            except (RuntimeError, ValueError):
                if _lay_out_row_by_row(tensor, original, *args, **kwargs):
                    return original(tensor, *args, **kwargs)  # type: ignore[no-any-return]
                out = lenient(tensor, *args, **kwargs)
                recorder.copied.note(tensor, out)
                return out

        return view

    with patched(torch.Tensor, "view", take), patched(torch.Tensor, "view_as", take):
        yield


def _lay_out_row_by_row(tensor: torch.Tensor, view: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Give a computed tensor a row-major layout if it then has the view. Return whether it was done."""
    layout = row_major_layout(tensor) if _is_computed(tensor) else None
    if layout is None or not _is_computed(layout.owner):
        return False
    with _disable_current_modes():
        probe = torch.empty_strided(tensor.shape, layout.stride, dtype=tensor.dtype, device="meta")
        try:
            view(probe, *args, **kwargs)
        except (RuntimeError, ValueError):
            return False
    _move(tensor, layout)
    return True


def _is_computed(tensor: torch.Tensor) -> bool:
    """Whether an operator of build() computed the tensor, and the recorder knows no value of it."""
    if type(tensor) is not RecordedTensor or hasattr(tensor, "_value"):
        return False
    node = getattr(tensor, "_of_node", None)
    if node is None or node.op != "call_function":
        return False
    schema = getattr(node.target, "_schema", None)  # an argument has the node of squeeze_() and the like
    return schema is None or not schema.is_mutable


def _move(tensor: Any, layout: RowMajorLayout) -> None:
    owner: Any = layout.owner
    with torch.no_grad():
        rows: Any = owner.clone(memory_format=torch.contiguous_format)
        if owner is not tensor:
            moved: Any = rows.as_strided(tensor.shape, layout.stride, layout.offset)
            _data.__set__(tensor, moved)
            tensor._of_node = moved._of_node
    _data.__set__(owner, rows)
    owner._of_node = rows._of_node


class CopiedViews:
    """The copies that stand for views in one capture."""

    def __init__(self, recorder: RecorderInterface) -> None:
        self._recorder = recorder
        self.has_views_of_rows = False  # whether x[i] with an integer tensor i is a view in this capture
        self.needs_views_of_rows = False  # the error below may be caught on its way
        self._rows: dict[int, tuple[int | None, Any]] = {}  # memory of such a copy -> memory of x, the index
        self.written_row: int | None = None  # memory of a row that is to be stored next, as by x[i] += y
        self._assigned_row: int | None = None  # memory of the row that an assignment reads
        # memory -> the memory that a write would have to reach. The storages stay alive, so that no other
        # memory gets their numbers.
        self._partners: dict[int, list[torch.UntypedStorage]] = {}

    @property
    def has_rows(self) -> bool:
        """Whether some x[i] is a copy. An update of x then counts as a write, too."""
        return bool(self._rows)

    def note(self, tensor: torch.Tensor, view: torch.Tensor) -> None:
        """Note that `view` is a copy of `tensor`."""
        memories = self._memory(tensor), self._memory(view)
        for memory, partner in (memories, reversed(memories)):
            if memory is not None and partner is not None:
                self._partners.setdefault(memory._cdata, []).append(partner)

    def note_row(self, tensor: torch.Tensor, row: torch.Tensor, index: Any) -> None:
        """Note that `row` is the copy tensor[index]."""
        memory, of_tensor = self._memory(row), self._memory(tensor)
        if memory is not None:
            self._rows[memory._cdata] = None if of_tensor is None else of_tensor._cdata, index
        self.note(tensor, row)

    @contextlib.contextmanager
    def assignment(self, tensor: torch.Tensor, index: Any, value: object) -> Iterator[None]:
        """A context in which tensor[index] = value is recorded.

        It stores a row that the last operator has written. A row that is the value stays as it is.
        """
        memory, row = self._memory(tensor), self._row_in(value)
        if row is not None and row == self.written_row and memory is not None:
            of_tensor, of_row = self._rows[row]
            if of_tensor == memory._cdata and _is_same_index(of_row, index):
                self.written_row = None
        self._assigned_row = row
        try:
            yield
        finally:
            self._assigned_row = None

    def _row_in(self, value: object) -> int | None:
        """Return the memory of a tensor that is a whole row, or None for another value."""
        if not self._rows or not isinstance(value, torch.Tensor):
            return None
        memory = self._memory(value)
        if memory is None or memory._cdata not in self._rows or not value.is_contiguous():
            return None
        return memory._cdata if value.nbytes == memory.nbytes() else None

    def check_row(self) -> None:
        """Raise if a row was written and the next operator does not store it, or at the end of build()."""
        if self.written_row is not None:
            self.needs_views_of_rows, self.written_row = True, None
        if self.needs_views_of_rows:
            raise ViewsNeeded("build() writes to a row, or to its tensor")

    def check_write(self, func: Any, args: Any, kwargs: Any) -> None:
        """Refuse a write to a tensor, or to its view, that the other one would have to show."""
        if not self._partners:
            return
        self.check_row()
        for position, argument in enumerate(func._schema.arguments):
            if is_written(argument):
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, (list, tuple)) else (value,):
                    self._check(tensor)

    def _check(self, tensor: object) -> None:
        memory = self._memory(tensor) if isinstance(tensor, torch.Tensor) else None
        partners = self._partners.get(memory._cdata, ()) if memory is not None else ()
        if memory is None or not partners:
            return
        others = {partner._cdata for partner in partners}
        if memory._cdata in self._rows:
            self.written_row = memory._cdata
            others.discard(self._rows[memory._cdata][0] or 0)
        others.discard(self._assigned_row or 0)
        rows = others & self._rows.keys()
        if rows and self._is_used(rows):
            self.needs_views_of_rows = True
            self.check_row()
        if others - rows and self._is_used(others - rows):
            raise CaptureError(
                "build() writes to a tensor, or to its view(), whose memory has another order than the view",
                "Call contiguous() before view(), and use its result from there on.",
            )

    def _is_used(self, memories: set[int]) -> bool:
        """Whether a tensor of the capture is in one of the memories."""
        computed = (reference() for reference in self._recorder.fakes)
        twins = (twin for _, _, twin in self._recorder.lifted.values())
        storages = (self._memory(tensor) for tensor in (*computed, *twins) if tensor is not None)
        return any(storage is not None and storage._cdata in memories for storage in storages)

    def _memory(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        """Return the memory of the symbolic tensor in a tensor of build()."""
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # vmap() and grad() wrap tensors
            tensor = torch._C._functorch.get_unwrapped(tensor)
        if isinstance(tensor, tuple(self._recorder.unfolds)):  # the tensor calls operators of its own
            return None
        if type(tensor) is not RecordedTensor:
            _, tensor = self._recorder.lift(tensor)
        return tensor.untyped_storage() if tensor.layout is torch.strided else None


def _is_same_index(index: Any, another: Any) -> bool:
    """Whether two indices are of the same parts, and of the same tensors."""
    if type(index) is tuple and type(another) is tuple:
        return len(index) == len(another) and all(map(_is_same_index, index, another))
    if isinstance(index, torch.Tensor) or isinstance(another, torch.Tensor):
        return index is another
    return type(index) is type(another) and bool(index == another)

"""One run of a job function's body: variables met, losses, watches, assignments, and what comes out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._functions.buffers import TensorList
from ..typing import _ListPlaceholder
from . import update as _update
from .blob import LocalBlob
from .host import densify


class Trace:
    """`captured` is true while the graph engine records; `probe` runs only to create variables."""

    def __init__(self, job: Any, captured: bool, probe: bool = False) -> None:
        self.job, self.session, self.captured, self.probe = job, job.session, captured, probe
        self.device: torch.device | None = None  # device of the inputs
        self.moves = False
        self.variables = {}  # full name -> tensor, in the order of creation
        self.trainable = {}  # full name -> whether this job trains it
        self.created_by = {}  # full name -> Variable
        self.new_variables = []
        self.losses = []
        self.optimizers = []
        self.watches = []  # (tensor, handler)
        self.diffs = []  # (tensor, handler)
        self.assignments = []  # (variable tensor, value)
        self.feeds = []  # (buffer, pull)
        self.updates = []
        self.dynamic_inputs = set()
        self.named = {}  # blob name -> tensor
        self.names = {}  # id(tensor) -> blob name
        self.unique = {}
        self.out: Any = None  # structure of the results
        self.handlers = []  # a handler for each watched value, after the results
        self.tick = 0  # counts calls, for host values
        self.sources = 0  # number of readers and random states so far
        self.host_values = {}  # id(tensor) -> function giving its host value
        self.readers = {}  # key in job.pipeline -> HostBlob
        self.parts = {}  # results of unpack and repeat
        self.rows_read: list[tuple[torch.Tensor, torch.Tensor]] = []  # (variable, rows) of each gather
        self.stale: dict[Any, Any] = {}  # (job, variable, buffer size) -> old value

    def forget_new_variables(self) -> None:
        """Remove the variables of a failed definition, which would only hinder the next attempt."""
        for name in self.new_variables:
            self.session.variables.pop(name, None)

    # -- names ---------------------------------------------------------------
    def unique_name(self, prefix: str) -> str:
        n = self.unique.get(prefix, 0)
        self.unique[prefix] = n + 1
        return f"{prefix}_{n}"

    def set_name(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        self.names[id(tensor)] = name
        self.named[name] = tensor
        return tensor

    def name_of(self, tensor: torch.Tensor) -> str:
        name = self.names.get(id(tensor))
        if name is None:
            name = f"{self.unique_name('Blob')}/out"
            self.set_name(tensor, name)
        return name

    def add_inputs(self, declared: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
        for i, tensor in enumerate(tensors):
            self.set_name(tensor, f"Input_{i}/out")
        for (_, what), tensor in zip(declared, tensors):
            if isinstance(what, _ListPlaceholder):
                self.dynamic_inputs.add(id(tensor))
        if tensors:
            self.device = tensors[0].device
            self.moves = self.device.type != "cpu"

    def note_rows(self, params: torch.Tensor, rows: torch.Tensor) -> None:
        """Remember which rows a gather reads of a variable, or of a variable times a number."""
        node: Any = None if params.is_leaf else params.grad_fn
        while node is not None and type(node).__name__ == "MulBackward0":
            [*operands] = [source for source, _ in node.next_functions if source is not None]
            node = operands[0] if len(operands) == 1 else None
        variable = params if params.is_leaf else getattr(node, "variable", None)
        if variable is not None:
            self.rows_read.append((variable, rows.reshape(-1).long()))

    # -- the end of the body ----------------------------------------------------
    def finish(self, out: dict[str, Any] | torch.Tensor | Sequence[Any] | None) -> list[torch.Tensor]:
        """Append gradients, updates and assignments; the flat list of everything that leaves the job."""
        out = densify_deep(out)
        flat = leaves(out)
        self.out = structure(out)
        self.job.output_names = [self.name_of(t) for t in flat]
        own = {id(t) for t in self.variables.values()}
        results = [_leaving(t, own) for t in flat]
        watched = [(_leaving(t, own), handler) for t, handler in self.watches]
        diffs = _update.apply(self)
        watched += [(d, handler) for d, (_, handler) in zip(diffs, self.diffs) if d is not None]
        if self.assignments and not self.probe:
            with torch.no_grad():
                for ref, value in self.assignments:
                    ref.copy_(value)
        self.handlers = [h for _, h in watched]
        if self.captured:
            self._forget_symbols()
        return results + [t for t, _ in watched]

    def _forget_symbols(self) -> None:
        """Symbolic tensors die with the capture: keep names only."""
        self.named, self.stale = dict.fromkeys(self.named), dict.fromkeys(self.stale)
        self.names = {}
        self.watches, self.diffs, self.assignments, self.losses, self.parts = [], [], [], [], {}
        self.rows_read = []
        for update in self.updates:
            update.lr_blob = update.lr_blob is not None or None

    # -- around a call ----------------------------------------------------------
    def before_call(self, step: int) -> None:
        """Put this step's learning rates and the next batch of the readers into their tensors."""
        for update in self.updates:
            update.set_scalars(step)
        for key in self.stale:
            self.session.stale_values[key].fill()
        if self.feeds:
            if not self.feeds[0].fresh:
                self.tick += 1
            for feed in self.feeds:
                feed.refill()

    def unused_batches(self) -> dict[str, Any]:
        """The batches that the readers gave for a call that did not happen."""
        return {key: blob.value() for key, blob in self.readers.items() if blob._tick == self.tick}

    def aliases(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[int]:
        """Whether each output shares memory with something that outlives the call."""
        kept = {t.untyped_storage().data_ptr() for t in inputs if t.numel()}
        kept |= {
            v.tensor.untyped_storage().data_ptr() for v in self.session.variables.values() if v.tensor.numel()
        }
        kept |= {feed.buffer.untyped_storage().data_ptr() for feed in self.feeds}
        return [t.untyped_storage().data_ptr() in kept for t in outputs]

    def results(self, outputs: Sequence[torch.Tensor], copy: Sequence[int]) -> Any:
        """Return nested LocalBlobs; watch handlers are called in passing."""
        arrays, dynamic = [], bool(self.dynamic_inputs)
        for tensor, shared in zip(outputs, copy):
            if not tensor.is_cpu:
                tensor, shared = tensor.cpu(), False
            if tensor.dtype is torch.bfloat16:
                tensor, shared = tensor.float(), False
            array = tensor.numpy()
            arrays.append(LocalBlob(array.copy() if shared else array, dynamic))
        count = len(arrays) - len(self.handlers)
        for blob, handler in zip(arrays[count:], self.handlers):
            handler(blob)
        return rebuild(self.out, iter(arrays), lambda blob: blob)


def _leaving(tensor: torch.Tensor, variables: Any) -> torch.Tensor:
    """Return a result as it leaves the job: the value before the update, not an alias of a variable."""
    result = tensor.detach()
    if id(tensor) in variables or tensor._is_view():
        result = result.clone()
    return result.to(torch.int8) if result.dtype == torch.bool else result


def densify_deep(value: Any) -> dict[str, Any] | torch.Tensor | Sequence[Any] | None:
    if isinstance(value, dict):
        return {k: densify_deep(v) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(densify_deep(v) for v in value)
    return densify(value)


# ------------------------------ Nested results of job functions: flatten, remember the structure, rebuild


def leaves(
    value: dict[str, Any] | torch.Tensor | Sequence[Any] | None, where: str = "the result"
) -> list[torch.Tensor]:
    """Flat list of the tensors of a job's result; anything else is an error that says what is allowed."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, TensorList):
        return value.items
    if value is None:
        return []
    if isinstance(value, (tuple, list)):
        return [leaf for i, v in enumerate(value) for leaf in leaves(v, f"{where}[{i}]")]
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in leaves(v, f"{where}[{k!r}]")]
    raise TypeError(
        f"{where} of the job function is a {type(value).__name__}; a job returns blobs, or tuples, lists and"
        " dicts of blobs, or None"
    )


def rebuild(value: Any, queue: Any, wrap: Callable[..., Any]) -> Any:
    """The structure of `value` with its tensors replaced by what `wrap` makes of the next item of `queue`."""
    if type(value) is int:  # a leaf of structure()
        return wrap(next(queue))

    if value is None:
        return None
    if isinstance(value, TensorList):
        return TensorList([rebuild(v, queue, wrap) for v in value.items])
    if isinstance(value, (tuple, list)):
        return type(value)(rebuild(v, queue, wrap) for v in value)
    if isinstance(value, dict):
        return {k: rebuild(v, queue, wrap) for k, v in value.items()}
    return wrap(next(queue))


def structure(
    value: dict[str, Any] | torch.Tensor | Sequence[Any] | None,
) -> dict[str, Any] | int | Sequence[Any] | None:
    """`value` with every tensor replaced by 0, so that no tensor is kept."""
    return rebuild(value, iter(lambda: 0, 1), lambda leaf: leaf)

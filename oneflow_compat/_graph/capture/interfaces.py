"""What the parts of a capture use of the capture, of its recorder and of symbolic tensors.

Recorder and Capture import these parts, so the parts name them by these protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    import weakref

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx import Graph, Node
    from torch.utils._pytree import TreeSpec

    from ..assumptions import Assumptions
    from ..config import Config
    from ..definition import GraphDefinition
    from ..guards.conditions import Condition
    from ..guards.observed import Observed
    from ..pipeline_plan import PipelinePlan
    from ..program.live_numbers import LiveNumber


class RecorderInterface(Protocol):
    """The recorder of a capture (recorder.py)."""

    graph: Graph
    fake_mode: FakeTensorMode
    sizes: Any
    results: Any  # Results in results/fake_results.py
    dynamic: Any
    guards: list[Condition]
    lifted: dict[int, Lifted]
    constants: dict[str, torch.Tensor]
    recurrent: list[Any]
    copied: Any  # CopiedViews
    fakes: list[weakref.ref[RecordedTensor]]
    numbers: list[weakref.ref[LiveNumber]]
    unfolds: Any
    micro_batch: int | None

    def placeholder(self, name: str, value: torch.Tensor | float) -> Node:
        """Return a new placeholder; placeholders stay in front of every other node."""

    def lift(self, tensor: torch.Tensor) -> tuple[Node, RecordedTensor]:
        """Return (node, twin) of a real tensor met inside the capture."""

    def hold(self, tensor: torch.Tensor) -> None:
        """Keep a real tensor as itself inside the capture."""

    def _annotate(self, node: Node) -> None: ...

    def _convert(self, a: Any) -> Any: ...

    def _convert_all(self, args: Any) -> Any: ...

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any: ...


# (root of a backward(), its gradient) -> the gradient, scaled for micro batches and by the loss scaler
LossFactor = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor | None]


class CaptureInterface(Protocol):
    """One run of build() under capture (capture.py)."""

    definition: GraphDefinition
    assumptions: Assumptions
    recorder: Any
    reads: Any  # the result of observe()
    config: Config
    args_flat: list[Any]
    in_spec: TreeSpec
    argument_objects: list[Any]  # the objects by their positions in the spec
    tensors: list[torch.Tensor]
    new_state: list[Any]
    state: Any
    update: Any
    aside: Any  # the state of optimizers that is set aside while step() runs
    step_reads: Any  # the result of observe_steps(), or None
    loss_factor: LossFactor | None
    modules: Any  # ModuleChanges
    attributes: list[Any]  # attributes that each run stores
    observed: Observed
    argument_facts: Any
    left_gradients: Any  # LeftGradients
    has_read_state: bool
    steps: Any  # StepsOfBuild
    options: Any  # OptionReads
    number_inputs: Any  # NumberInputs
    gradient_names: dict[int, str]
    plan: PipelinePlan | None
    consumed: list[Any]  # the roots of each backward(), whose history is gone

    @property
    def overflow(self) -> Node | None:
        """The node that is 1 if the gradients overflowed, if the program has to report it."""

    @property
    def owners(self) -> list[Any]:
        """The modules that build() used, and the object that build() belongs to."""


if TYPE_CHECKING:

    class RecordedTensor(FakeTensor):
        """A symbolic tensor of a capture: a fake tensor, and the node of the graph that computes it.

        The class is torch's FakeTensor. A type checker also sees the attributes that the recorder adds.
        """

        _of_node: Node
        _value: torch.Tensor  # the real value, if it is known; see KnownValues in values/known.py
        _unknown_rows: list[Any]  # rows of a sparse tensor whose number depends on values
        _of_placement: Any
        _of_sbp: Any

else:
    RecordedTensor = FakeTensor

# a real tensor that the capture met or created, its node, and its symbolic twin
Lifted = tuple[torch.Tensor, "Node", RecordedTensor]

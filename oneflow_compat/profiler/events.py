"""Records of OneFlow's profiler: events read from its JSON text, averaged by key and laid out as a table.

The text is a list of objects: {"type": 0, "name", "time", "custom_type"} for ranges and CUDA activity, and
{"type": 1, "name", "time", "memory_size", "input_shapes", "children"} for operators. Times are microseconds.
"""

from __future__ import annotations

import copy
import json
from abc import ABC
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from torch.autograd.profiler_util import FunctionEventAvg

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["CustomEvent", "CustomEventType", "EventBase", "EventType", "Events", "KernelEvent"]


def format_time(time_us: float) -> str:
    """Microseconds as "12.000us", "1.234ms" or "2.000s"."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


class EventType(Enum):
    Custom = 0
    Kernel = 1


class CustomEventType(Enum):
    Default = 0
    CudaKernel = 1
    CudaRuntime = 2


class EventBase(ABC):
    """`count` calls of one name that took `time_total` microseconds together."""

    MAX_NAME_LENGTH = 55

    def __init__(self, name: str, time_total: float, event_type: EventType) -> None:
        self._name, self._time_total, self.count, self.event_type = name, time_total, 1, event_type

    @property
    def name(self) -> str:
        """At most MAX_NAME_LENGTH characters; a longer name ends in "...", so cut."""
        limit = self.MAX_NAME_LENGTH
        return self._name if len(self._name) <= limit else self._name[: limit - 3] + "..."

    @property
    def cpu_time_total(self) -> float | None:
        return self._time_total

    @property
    def cuda_time_total(self) -> float | None:
        return None

    @property
    def cpu_time(self) -> float | None:
        return None if self.cpu_time_total is None else self.cpu_time_total / self.count

    @property
    def cuda_time(self) -> float | None:
        return None if self.cuda_time_total is None else self.cuda_time_total / self.count

    def has_cuda_time(self) -> bool:
        return self.cuda_time_total is not None

    def update(self, event: Any) -> None:
        """Add the calls of another event of the same kind; AssertionError for another."""
        if self.event_type != event.event_type:
            raise AssertionError(
                f"an event of type {self.event_type} cannot take in one of type {event.event_type}"
            )
        self.count += event.count
        self._time_total += event._time_total

    def _values(self) -> tuple[Any, ...]:
        """Return the values that are the same in two equal events of one class."""
        return self.name, self.count, self.cpu_time_total, self.cuda_time_total

    def __eq__(self, value: object) -> bool:
        return type(self) is type(value) and self._values() == value._values()

    __hash__ = None  # type: ignore[assignment]  # an event changes in update()

    def _times(self, device: Literal["cpu", "cuda"]) -> dict[str, Any]:
        """The total and the mean on "cpu" or "cuda" as texts; nothing where there are none."""
        total = getattr(self, f"{device}_time_total")
        return (
            {}
            if total is None
            else {
                f"{device}_time": format_time(total / self.count),
                f"{device}_time_total": format_time(total),
            }
        )


class CustomEvent(EventBase):
    """A range of the user's, or an activity on the CUDA device."""

    def __init__(self, name: str, time_total: float, custom_event_type: CustomEventType) -> None:
        super().__init__(name, time_total, EventType.Custom)
        self.custom_event_type = custom_event_type

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> CustomEvent:
        value_of: Callable[..., Any] = d.get
        return cls(value_of("name"), value_of("time"), CustomEventType(value_of("custom_type")))

    @property
    def key(self) -> tuple[str, CustomEventType]:
        return self.name, self.custom_event_type

    def _values(self) -> tuple[Any, ...]:
        return *super()._values(), self.custom_event_type

    @property
    def cpu_time_total(self) -> float | None:
        return None if self.custom_event_type is CustomEventType.CudaKernel else self._time_total

    @property
    def cuda_time_total(self) -> float | None:
        return self._time_total if self.custom_event_type is CustomEventType.CudaKernel else None

    def to_dict(self) -> dict[str, Any]:
        """Texts of one line of the table."""
        return {"name": self.name, "count": self.count, **self._times("cpu"), **self._times("cuda")}


class KernelEvent(EventBase):
    """One operator, with the device activity it started as children."""

    def __init__(
        self, name: str, time_total: float, memory_size: int | None, description: str | dict[str, Any] = ""
    ) -> None:
        super().__init__(name, time_total, EventType.Kernel)
        self.children: list[CustomEvent] = []
        self.memory_size = memory_size
        self.description = (
            dict(description) if isinstance(description, dict) else {"shape": description or ""}
        )
        self._cuda_time_total = 0.0

    @property
    def input_shapes(self) -> str:
        """Shapes of the inputs: the text given as description, or its "shape" entry."""
        return _text(self.description.get("shape"))

    @property
    def attributes(self) -> str:
        """The "attrs" entry of the description, where there is one."""
        return _text(self.description.get("attrs"))

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> KernelEvent:
        value_of: Callable[..., Any] = d.get
        event = cls(
            value_of("name"),
            value_of("time"),
            value_of("memory_size"),
            value_of("input_shapes", value_of("description")) or "",
        )
        for child in value_of("children") or ():
            event.add_child(CustomEvent.from_dict(child))
        return event

    def add_child(self, event: CustomEvent) -> None:
        self.children.append(event)
        if event.custom_event_type is CustomEventType.CudaKernel:
            self._cuda_time_total += event._time_total

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.input_shapes

    def _values(self) -> tuple[Any, ...]:
        return *super()._values(), self.children, self.memory_size, self.input_shapes

    @property
    def cuda_time_total(self) -> float | None:
        return self._cuda_time_total or None

    @property
    def bandwidth(self) -> str:
        """Bytes of one call over its time on the device; "-" without device time."""
        cuda_time = self.cuda_time
        if cuda_time is None or self.memory_size is None or self.memory_size < 0:
            return "-"
        return f"{self.memory_size / (1 << 30) / (cuda_time * 1e-6):.3f}GB/s"

    def update(self, event: Any) -> None:
        """Add the calls of another event, child by child; AssertionError when the children are others."""
        mine, theirs = [c.key for c in self.children], [c.key for c in event.children]
        if mine != theirs:
            raise AssertionError(f"calls of {self.name} differ in what they started: {mine} and {theirs}")
        super().update(event)
        self._cuda_time_total += event._cuda_time_total
        for child, addition in zip(self.children, event.children):
            child.update(addition)

    def make_children_average(self) -> None:
        """Children of one key become one."""
        merged: dict[Any, Any] = {}
        for child in self.children:
            _into(merged, child.key, child)
        self.children = list(merged.values())

    def to_dict(self) -> dict[str, Any]:
        """Texts of one line of the table."""
        extra = {"attributes": self.attributes} if self.attributes else {}
        return {
            "name": self.name,
            **self._times("cpu"),
            "count": self.count,
            "input_shapes": self.input_shapes or "-",
            "bandwidth": self.bandwidth,
            **extra,
            **self._times("cuda"),
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ", ".join(map(str, value or ()))


def _into(merged: dict[Any, Any], key: Any, event: Any) -> None:
    if key in merged:
        merged[key].update(event)
    else:
        merged[key] = event


_COLUMNS = (
    ("Name", "name"),
    ("CPU time total", "cpu_time_total"),
    ("CPU time", "cpu_time"),
    ("GPU time total", "cuda_time_total"),
    ("GPU time", "cuda_time"),
    ("Number of calls", "count"),
)
_OPTIONAL = (("Input shapes", "input_shapes"), ("Attributes", "attributes"), ("Bandwidth", "bandwidth"))


class Events(list[Any]):
    """The events of a JSON text; a list to which more can be appended."""

    def __init__(self, events: str = "") -> None:
        super().__init__()
        if not isinstance(events, str):  # a list of events, as list() takes it
            self.extend(events)
            return
        for d in json.loads(events) if events else ():
            self.append(
                (
                    KernelEvent
                    if EventType(d.get("type", d.get("event_type"))) is EventType.Kernel
                    else CustomEvent
                ).from_dict(d)
            )

    def key_averages(self, group_by_input_shape: bool = False, group_by_attributes: bool = False) -> Events:
        """Events of one name summed up, with a mean per call; operators also apart by shapes or attributes on
        request.

        The events of this list stay as they are. Calls of an operator that started different device activity
        stay apart.
        """
        merged: dict[Any, Any] = {}
        for event in copy.deepcopy(list(self)):
            if isinstance(event, KernelEvent):
                event.make_children_average()
                for asked, part in ((group_by_input_shape, "shape"), (group_by_attributes, "attrs")):
                    if not asked:
                        event.description.pop(part, None)
                key: tuple[Any, ...] = (event.key, event.attributes, tuple(c.key for c in event.children))
            else:
                key = (event.key,)
            _into(merged, (event.event_type, *key), event)
        out = Events()
        out.extend(merged.values())
        return out

    def table(self) -> str:
        """One line per event and per child; columns of shapes, attributes and bandwidth where an event has
        them.
        """
        rows = []
        for event in self:
            rows.append(event.to_dict())
            rows += [child.to_dict() for child in getattr(event, "children", ())]
        columns = list(_COLUMNS) + [c for c in _OPTIONAL if any(row.get(c[1], "-") != "-" for row in rows)]
        lines = [[title for title, _ in columns]] + [
            [str(row.get(key, "-")) for _, key in columns] for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*lines)]
        texts = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([texts[0], "  ".join("-" * w for w in widths), *texts[1:]])

    __str__ = table


# ---------------------------------------------------------------------------
# Averages of torch's profiler that also answer as OneFlow's events: `name` without "aten::", shapes as one
# text, KernelEvent or CustomEvent by kind.

_NAMES = {
    "threshold_backward": "relu_grad",
    "convolution_backward": "conv_grad",
    "addmm": "addmm",
    "mm": "matmul",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "gelu_backward": "gelu_grad",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "normalization",
}


class _Average(FunctionEventAvg):
    @property
    def name(self) -> str:
        """The key without torch's namespace, under OneFlow's word where it has another."""
        plain = str(self.key).removeprefix("aten::")
        return _NAMES.get(plain, plain)


class OperatorAverage(_Average):
    """Calls of one operator; `input_shapes` is a text such as "(2,3), (3,4)", or "-" when shapes were not
    asked for.
    """

    @property  # type: ignore[override]
    def input_shapes(self) -> str:
        shapes = self.__dict__.get("input_shapes")
        if isinstance(shapes, str) or not shapes:
            return shapes or "-"
        return ", ".join("(" + ",".join(map(str, s)) + ")" for s in shapes if s) or "-"

    @input_shapes.setter
    def input_shapes(self, value: Any) -> None:
        self.__dict__["input_shapes"] = value


class RangeAverage(_Average):
    """Times of one range of the user's."""


KernelEvent.register(OperatorAverage)
CustomEvent.register(RangeAverage)


def named(averages: Any) -> Any:
    """The list of torch, its items turned into these."""
    for event in averages:
        if type(event) is FunctionEventAvg:
            event.__class__ = RangeAverage if event.is_user_annotation else OperatorAverage
    return averages

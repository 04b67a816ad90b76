"""Learning rate schedules of saved programs: the formulas of oneflow.optim.lr_scheduler, stored as their
parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...optim.lr_scheduler import LRScheduler, compose, formulas
from .reader import anything, boolean, choice, inside, integer, listed, number, optional, refuse, text
from .reader import record as keyed

if TYPE_CHECKING:
    from .reader import Reader

_LARGEST = 2**53
_DEEPEST = 20  # nested schedules


def _real(value: object, location: str) -> float:
    """Read a float. Integers are converted, because a power of two integers from a file could have a billion
    digits.
    """
    return float(number(value, location))


def _count(value: object, location: str) -> float:
    """Read a number of steps; schedules also accept fractions."""
    steps = number(value, location)
    if abs(steps) > _LARGEST:
        raise refuse(location, f"a number of steps up to {_LARGEST}", value)
    return steps


def _period(value: object, location: str) -> float:
    steps = _count(value, location)
    if steps <= 0:
        raise refuse(location, "a positive number of steps", value)
    return steps


def _flag(value: object, location: str) -> float:
    return boolean(value, location) if type(value) is bool else number(value, location)


_whole = integer(1, _LARGEST)
_COMPOSED = {"milestones": listed(_count), "interval_rescaling": listed(_flag)}
# the attributes that rates_at() of each schedule reads
_FIELDS: dict[str, dict[str, Reader]] = {
    "StepLR": {"step_size": _period, "gamma": _real},
    "MultiStepLR": {"milestones": listed(_count), "gamma": _real},
    "ExponentialLR": {"gamma": _real},
    "ConstantLR": {"factor": _real, "total_iters": _count},
    "LinearLR": {"start_factor": _real, "end_factor": _real, "total_iters": _count},
    "CosineAnnealingLR": {"T_max": _period, "eta_min": _real},
    "CosineDecayLR": {"decay_steps": _period, "alpha": _real},
    "PolynomialLR": {"max_decay_steps": _period, "end_learning_rate": _real, "power": _real, "cycle": _flag},
    "CosineAnnealingWarmRestarts": {
        "T_0": _whole,
        "T_mult": _whole,
        "eta_min": _real,
        "decay_rate": _real,
        "restart_limit": _count,
    },
    "SequentialLR": _COMPOSED,
    "WarmUpLR": _COMPOSED,
    "ChainedScheduler": {},
}
_formula = keyed(kind=choice(*_FIELDS), numbers=anything, members=listed(anything))
_schedule = keyed(
    kind=choice(*_FIELDS),
    numbers=anything,
    members=listed(anything),
    base=listed(number),
    step=_count,
    rates=listed(optional(text)),
)


def _class(name: str) -> type[LRScheduler]:
    cls: type[LRScheduler] = getattr(formulas, name, None) or getattr(compose, name)
    return cls


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _is_numeric(value: object) -> bool:
    return _is_number(value) or isinstance(value, list) and all(map(_is_number, value))


def _formula_record(schedule: LRScheduler) -> dict[str, Any] | None:
    """Return {kind, numbers, members} of a schedule, or None if it is not one of these formulas."""
    class_name = type(schedule).__name__
    if class_name not in _FIELDS or type(schedule) is not _class(class_name):
        return None
    fields = {name: getattr(schedule, name) for name in _FIELDS[class_name]}
    members = [_formula_record(s) for s in getattr(schedule, "schedulers", ())]
    if None in members or not all(map(_is_numeric, fields.values())):
        return None
    return {"kind": class_name, "numbers": fields, "members": members}


def record(schedule: LRScheduler, rates: list[str | None]) -> dict[str, Any] | None:
    """Return what a file stores of a schedule, or None if it cannot be stored. `rates` are the slots of its
    groups' rates (None: no slot).
    """
    formula = _formula_record(schedule)
    if formula is None or not _is_numeric(schedule.base_lrs) or not _is_number(schedule.last_epoch):
        return None
    return {**formula, "base": list(schedule.base_lrs), "step": schedule.last_epoch, "rates": rates}


class SavedSchedule:
    """A schedule read from a file: the rates of slots, step by step."""

    def __init__(self, value: object, slots: set[str], location: str) -> None:
        entry = _schedule(value, location)
        self.formula: Any = _read_formula(entry, location, 0)  # an LRScheduler with rates_at()
        self.base, self.step, self.rates = entry["base"], entry["step"], entry["rates"]
        if len(self.rates) != len(self.base):
            raise refuse(inside(location, "rates"), f"{len(self.base)} rates, one for each group", self.rates)
        if unknown := set(self.rates) - {None} - slots:
            expected = f"learning rates of the program ({', '.join(sorted(slots))})"
            raise refuse(inside(location, "rates"), expected, sorted(unknown))
        self._at(self.step)

    def _at(self, step: float) -> dict[str, Any]:
        rates = self.formula.rates_at(self.base, step)
        return {name: rate for name, rate in zip(self.rates, rates) if name is not None}

    def next(self) -> dict[str, float]:
        """Return {slot name: rate} of the next step."""
        self.step += 1
        return self._at(self.step)

    def record(self) -> dict[str, Any]:
        formula = _formula_record(self.formula) or {}
        return {**formula, "base": self.base, "step": self.step, "rates": self.rates}


def _read_formula(entry: dict[str, Any], location: str, depth: int) -> LRScheduler:
    """Return the schedule of a checked record, created without its constructor."""
    class_name = entry["kind"]
    fields = keyed(None, **_FIELDS[class_name])(entry["numbers"], inside(location, "numbers"))
    members = [_formula(m, f"{location}.members[{i}]") for i, m in enumerate(entry["members"])]
    _check_members(class_name, fields, members, depth, location)
    cls = _class(class_name)
    schedule: Any = cls.__new__(cls)
    schedule.__dict__.update(fields)
    if members:
        schedule.schedulers = [
            _read_formula(m, f"{location}.members[{i}]", depth + 1) for i, m in enumerate(members)
        ]
    read: LRScheduler = schedule
    return read


def _check_members(
    class_name: str, fields: dict[str, Any], members: list[Any], depth: int, location: str
) -> None:
    if _FIELDS[class_name] is _COMPOSED:
        expected = "one member more than milestones, and a flag for each milestone"
        milestones = len(fields["milestones"])
        fits = len(members) == milestones + 1 and len(fields["interval_rescaling"]) == milestones
    elif class_name == "ChainedScheduler":
        expected, fits = "one member or more", len(members) > 0
    else:
        expected, fits = "no members", not members
    if not fits or depth > _DEEPEST:
        expected = f"a {class_name} with {expected}, nested at most {_DEEPEST} deep,"
        raise refuse(location, expected, len(members))

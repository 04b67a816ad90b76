"""Learning rate schedules of saved programs: the formulas of oneflow.optim.lr_scheduler, stored as their numbers."""
from __future__ import annotations

# what rates_at() of each reads
_KINDS = {
    "StepLR": ("step_size", "gamma"), "MultiStepLR": ("milestones", "gamma"), "ExponentialLR": ("gamma",), "ConstantLR": ("factor", "total_iters"),
    "LinearLR": ("start_factor", "end_factor", "total_iters"), "CosineAnnealingLR": ("T_max", "eta_min"), "CosineDecayLR": ("decay_steps", "alpha"),
    "PolynomialLR": ("max_decay_steps", "end_learning_rate", "power", "cycle"),
    "CosineAnnealingWarmRestarts": ("T_0", "T_mult", "eta_min", "decay_rate", "restart_limit"),
    "SequentialLR": ("milestones", "interval_rescaling"), "WarmUpLR": ("milestones", "interval_rescaling"), "ChainedScheduler": (),
}  # fmt: skip


def _class(kind):
    from ..optim.lr_scheduler import compose, formulas

    if kind not in _KINDS:
        raise ValueError(f"a schedule of unknown kind {kind!r}")
    return getattr(formulas, kind, None) or getattr(compose, kind)


def _number(value):
    return isinstance(value, (int, float))


def _numbers(value):
    return _number(value) or isinstance(value, list) and all(map(_number, value))


def _formula_record(schedule):
    """{kind, numbers, members} of a schedule; None where it is no formula of these."""
    kind = type(schedule).__name__
    if kind not in _KINDS or type(schedule) is not _class(kind):
        return None
    numbers = {name: getattr(schedule, name) for name in _KINDS[kind]}
    members = [_formula_record(s) for s in getattr(schedule, "schedulers", ())]
    return {"kind": kind, "numbers": numbers, "members": members} if all(map(_numbers, numbers.values())) and None not in members else None


def record(schedule, rates):
    """What a file holds of a schedule whose groups' rates are the slots `rates` (None: of no slot); None where it cannot be stored."""
    formula = _formula_record(schedule)
    if formula is None or not _numbers(schedule.base_lrs) or not _number(schedule.last_epoch):
        return None
    return {**formula, "base": list(schedule.base_lrs), "step": schedule.last_epoch, "rates": rates}


class SavedSchedule:
    """A schedule read from a file: the rates of slots, step by step."""

    def __init__(self, found, slots):
        self.formula, self.base, self.step, self.rates = _made(found), found["base"], found["step"], found["rates"]
        if not isinstance(self.base, list) or not all(map(_number, self.base)) or not _number(self.step) or len(self.rates) != len(self.base):
            raise ValueError("a schedule whose rates and groups do not fit")
        if unknown := set(self.rates) - {None} - slots:
            raise ValueError(f"a schedule of {sorted(unknown)}, which are no learning rates of the program")
        self._at(self.step)

    def _at(self, step):
        return {name: rate for name, rate in zip(self.rates, self.formula.rates_at(self.base, step)) if name is not None}

    def next(self):
        """{slot name: rate} of the next step."""
        self.step += 1
        return self._at(self.step)

    def record(self):
        return {**_formula_record(self.formula), "base": self.base, "step": self.step, "rates": self.rates}


def _made(found):
    kind, numbers = found["kind"], found["numbers"]
    cls = _class(kind)
    if set(numbers) != set(_KINDS[kind]) or not all(map(_numbers, numbers.values())):
        raise ValueError(f"a {kind} with the numbers {numbers}")
    schedule = cls.__new__(cls)
    schedule.__dict__.update(numbers)
    if found["members"]:
        schedule.schedulers = [_made(m) for m in found["members"]]
    return schedule

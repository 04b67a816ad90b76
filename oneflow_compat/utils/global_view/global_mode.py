"""global_mode: inside the block, creation functions make global tensors."""
from __future__ import annotations

from ..._global import mode as _mode
from ..._global.placement import placement as Placement
from ..._global.tensor import check_rules


class global_mode:
    """`with global_mode(True, placement, sbp):` creation functions without `placement=` use these; False turns it off inside."""

    def __init__(self, enabled, placement=None, sbp=None):
        if not isinstance(enabled, bool):
            raise TypeError(f"global_mode(enabled, placement, sbp): enabled must be a bool, found {type(enabled).__name__}")
        if enabled:
            if not isinstance(placement, Placement) or sbp is None:
                raise ValueError(f"global_mode(True, placement, sbp) needs both, found placement={placement!r}, sbp={sbp!r}")
            sbp = check_rules(sbp, placement, 6)
        elif placement is not None or sbp is not None:
            raise ValueError("global_mode(False) takes no placement and no sbp")
        self._mode = _mode.Mode(enabled, placement, sbp)

    def __enter__(self):
        _mode.stack.append(self._mode)
        return self

    def __exit__(self, *error):
        _mode.stack.pop()
        return False


class current_global_mode:
    """What is in force: `is_enabled`, and `placement` and `sbp` (None when off)."""

    def __init__(self):
        self._mode = _mode.current()

    is_enabled = property(lambda self: self._mode.enabled)
    placement = property(lambda self: self._mode.placement)
    sbp = property(lambda self: self._mode.sbp)

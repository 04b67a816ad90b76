"""Texts of the errors of mock_torch."""

error_msg = (
    " is not implemented: it is in neither oneflow nor torch, so it cannot be used under oneflow.mock_torch"
)

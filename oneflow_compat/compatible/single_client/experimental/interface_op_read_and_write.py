"""Reading and writing variables by name."""

from __future__ import annotations

from .. import _session


def sync_default_session_if_normal():
    _session.sync_default_session()


def GetEagerInterfaceBlob(op_name):
    """The variable as a blob with numpy()."""
    session = _session.default()
    session.start()
    if op_name not in session.variables:
        raise KeyError(f"there is no variable {op_name!r}; the session has {sorted(session.variables)}")
    return _session.VariableBlob(op_name, session.variables[op_name].tensor)


def GetInterfaceBlobValue(op_name):
    return GetEagerInterfaceBlob(op_name)


def FeedValueToInterfaceBlob(op_name, ndarray):
    GetEagerInterfaceBlob(op_name)
    _session.default().load({op_name: ndarray}, ignore_mismatch=False)


def FeedValueToInterfaceBlobObject(blob_object, ndarray):
    FeedValueToInterfaceBlob(blob_object.name, ndarray)

"""Deep path of name scopes."""

from __future__ import annotations

from .. import _context
from ..scope import namespace as name_scope

_pushed: list = []


def deprecated_name_scope(*args, **kwargs):
    return name_scope(*args, **kwargs)


def name_scope_stack_push(name):
    """Open a namespace without a with statement."""
    scope = name_scope(name)
    scope.__enter__()
    _pushed.append(scope)


def name_scope_stack_pop():
    _pushed.pop().__exit__(None, None, None)


def GetJobNameScopePrefix(job_name):
    """The open namespaces as a prefix, "a-b-"."""
    return "".join(n + "-" for n in _context.all_open("namespace"))


def PrependOpNamePrefixIfNeed(op_conf):
    """Put the prefix in front of op_conf.name."""
    op_conf.name = GetJobNameScopePrefix(None) + op_conf.name

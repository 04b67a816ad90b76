"""The unpickler of safe loads: opcodes of protocols 2 to 5, names of `allow`, memory of a `Budget`.

It is Python's pickle._Unpickler with a shorter table of opcodes. Each opcode that calls, fills or changes an
object is replaced by a handler that checks the object first. It reads OneFlow's pickles and the pickles in
torch's files. torch's own safe unpickler lacks opcodes that OneFlow writes, and has no memory limits.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import struct
import types
import uuid
from collections.abc import Callable
from typing import IO, Any

from .budget import Budget
from .constructors import allow, plain_values, storage_classes
from .constructors.numpy_values import Shell
from .errors import CheckpointError, RefusedError
from .shown import plain_text, shown, title

_KEPT = (
    "PROTO FRAME STOP MARK POP POP_MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT"
    " BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 BINUNICODE SHORT_BINUNICODE BINUNICODE8"
    " EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 GLOBAL STACK_GLOBAL BINGET LONG_BINGET"
)
FindShell = Callable[[str, str], type[Shell] | None]
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_HEADER = 56  # bytes of an empty list
_MEMO = 100  # bytes of an entry of the memo


class _Bounded:
    """A file of known size. Reading more bytes than are left raises an error and allocates nothing."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._left = file, size
        self.readinto = None

    def read(self, count: int) -> bytes:
        if not 0 <= count <= self._left:
            raise CheckpointError(f"truncated or altered: {count} bytes are announced, {self._left} are left")
        data = self._file.read(count)
        self._left -= len(data)
        if len(data) != count:
            raise CheckpointError(f"truncated: {count} bytes are announced, {len(data)} were read")
        return data

    def readline(self) -> bytes:
        line = self._file.readline(min(self._left, 1 << 16))
        self._left -= len(line)
        return line


def _push_empty(make: Any, size: Any) -> Any:
    """Return the handler of an opcode that creates an empty container of `size` bytes."""

    def load(self: Any) -> None:
        self.budget.charge_objects(size, make.__name__)
        self.append(make())

    return load


class Unpickler(pickle._Unpickler):
    """Load one pickle of at most `size` bytes.

    `budget` limits what it may allocate. `find_shell(module, name)` returns the Shell of a class whose
    objects are described by their state (the layers of torch.nn), or None.
    """

    def __init__(
        self,
        file: IO[bytes],
        size: int,
        budget: Budget,
        encoding: str = "utf-8",
        find_shell: FindShell | None = None,
    ) -> None:
        super().__init__(_Bounded(file, size), encoding=encoding, fix_imports=False)
        self.budget, self._find_shell, self._unfinished = budget, find_shell, 0

    # ------------------------------------------------------------------- names
    def find_class(self, module: str, name: str) -> Any:
        """Return the value, Constructor or storage class of a name.

        Raise RefusedError if it is not allowed.
        """
        storage = storage_classes.storage_class(module, name)
        allowed = storage if storage is not None else allow.find(module, name)
        if allowed is None and self._find_shell is not None:
            allowed = self._find_shell(module, name)
        if allowed is None:
            raise RefusedError(
                f"it holds a {plain_text(f'{module}.{name}')}, which a safe load does not construct. If you"
                " trust the file, load it with weights_only=False, or allow the class with"
                f" torch.serialization.add_safe_globals([{plain_text(name)}])"
            )
        return allowed

    def persistent_load(self, pid: Any) -> Any:
        """Return a storage of a torch file. A OneFlow pickle has none."""
        raise RefusedError("altered: a value is in another place (a persistent id)")

    # ------------------------------------------------------------------- calls
    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        target = self.stack[-1]
        make = self.make if isinstance(target, type) and issubclass(target, Shell) else self._call
        self.stack[-1] = self._counted(make(target, arguments))

    def _call(self, target: Any, arguments: Any) -> Any:
        return allow.call(target, arguments, self.budget)

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = self._counted(self.make(self.stack[-1], arguments))

    def _counted(self, value: Any) -> Any:
        self._unfinished += isinstance(value, Shell)
        return value

    def make(self, cls: Any, arguments: Any) -> Any:
        """Return the object of a NEWOBJ opcode."""
        if isinstance(cls, type) and issubclass(cls, Shell):
            # the constructor of a layer does not run
            if not cls.takes_arguments and (type(arguments) is not tuple or arguments):
                raise RefusedError(f"altered: a {cls.__name__} is made with arguments")
            self.budget.charge_objects(cls.size, cls.__name__)
            return cls()
        return allow.new(cls, arguments, self.budget)

    def load_build(self) -> None:
        """Give an object its state. A shell becomes the object that it stands for."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Shell):
            self.stack[-1] = value = self.value_of(target, state)
            for key in target.memo_keys:
                self.memo[key] = value
            target.memo_keys.clear()
            self._unfinished -= 1
        elif isinstance(target, uuid.UUID):
            plain_values.build_uuid(target, state)
        elif type(target) in (collections.OrderedDict, argparse.Namespace, types.SimpleNamespace):
            target.__dict__.update(_attributes(type(target), state))
        elif allow.is_user_global(type(target)):
            self.stack.append(state)
            super().load_build()
        else:
            raise RefusedError(f"it changes {title(target)}, which a safe load does not do")

    def value_of(self, shell: Shell, state: Any) -> Any:
        """Return the object that a shell stands for."""
        return shell.build(state, self.budget)

    # ------------------------------------------------------------------- containers
    def load_mark(self) -> None:
        self.budget.charge_objects(_HEADER, "a mark")
        super().load_mark()

    def load_frozenset(self) -> None:
        items = self.pop_mark()  # pop_mark replaces self.append
        self.append(allow.CONSTRUCTORS["builtins.frozenset"](self.budget, items))

    def load_additems(self) -> None:
        items, target = self.pop_mark(), self.stack[-1]
        _check_type(target, (set,), "elements")
        for item in items:
            self.budget.check_key(item)
        self.budget.charge_objects(16 * len(items), "a set")
        target.update(items)

    def load_append(self) -> None:
        item = self.stack.pop()
        _check_type(self.stack[-1], (list, collections.deque), "elements")
        self.stack[-1].append(item)

    def load_appends(self) -> None:
        items = self.pop_mark()
        _check_type(self.stack[-1], (list, collections.deque), "elements")
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def _set_items(self, items: Any) -> None:
        target = self.stack[-1]
        _check_type(target, _DICTS, "items")
        for i in range(0, len(items), 2):
            self.budget.check_key(items[i])
            target[items[i]] = items[i + 1]

    def load_bytearray8(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    # ------------------------------------------------------------------- memo
    def _note(self, key: Any) -> None:
        value = self.stack[-1]
        if isinstance(value, Shell):
            value.memo_keys.append(key)
        if key not in self.memo:
            self.budget.charge_objects(_MEMO, "a memo")
        self.memo[key] = value

    def load_memoize(self) -> None:
        self._note(len(self.memo))

    def load_binput(self) -> None:
        self._note(self.read(1)[0])

    def load_long_binput(self) -> None:
        self._note(struct.unpack("<I", self.read(4))[0])

    dispatch = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
        for name in _KEPT.split()
    }
    for _name, _load in {
        "REDUCE": load_reduce,
        "NEWOBJ": load_newobj,
        "BUILD": load_build,
        "MARK": load_mark,
        "FROZENSET": load_frozenset,
        "ADDITEMS": load_additems,
        "APPEND": load_append,
        "APPENDS": load_appends,
        "SETITEM": load_setitem,
        "SETITEMS": load_setitems,
        "BYTEARRAY8": load_bytearray8,
        "MEMOIZE": load_memoize,
        "BINPUT": load_binput,
        "LONG_BINPUT": load_long_binput,
        "EMPTY_LIST": _push_empty(list, _HEADER),
        "EMPTY_DICT": _push_empty(dict, 64),
        "EMPTY_SET": _push_empty(set, 216),
        "BINPERSID": pickle._Unpickler.load_binpersid,
    }.items():
        dispatch[getattr(pickle, _name)[0]] = _load

    def load(self) -> Any:
        """Return the object. Raise RefusedError for an opcode that is not in the table."""
        try:
            value = super().load()
            if self._unfinished:
                raise CheckpointError("truncated or altered: an object has no state")
            return value
        except KeyError as error:
            if error.args and type(error.args[0]) is int and error.args[0] not in self.dispatch:
                raise RefusedError(
                    f"altered: no opcode of a pickle of protocol 2 or newer: {shown(chr(error.args[0]))}"
                ) from None
            raise


def _check_type(target: Any, classes: Any, what: str) -> None:
    if type(target) not in classes and not allow.is_user_global(type(target)):
        raise RefusedError(f"altered or hostile: it adds {what} to a {type(target).__name__}")


def _attributes(cls: type, state: Any) -> dict:
    """Return a state that is a dict of attributes, none of which hides one of the class, or raise."""
    if type(state) is not dict or any(type(name) is not str or hasattr(cls, name) for name in state):
        raise RefusedError(f"altered: the state of a {cls.__name__} is no dict of attributes of its own")
    return state

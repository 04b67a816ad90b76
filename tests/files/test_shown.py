"""Messages print values of a file through shown(), which visits a bounded number of objects."""

import ast
import pathlib

import numpy as np
import pytest
import torch

import oneflow
from oneflow._file_safety.errors import CheckpointError, named_errors
from oneflow._file_safety.shown import shown, title

PACKAGE = pathlib.Path(oneflow.__file__).parent
# Modules that hold values of a file. Writers and modules that only see the caller's values are not here.
READERS = [
    *sorted(p for p in PACKAGE.glob("_file_safety/**/*.py") if p.name not in ("shown.py", "atomic.py")),
    *(
        PACKAGE / "_files" / f"{name}.py"
        for name in ("layout", "modules", "pickles", "reading", "safetensors")
    ),
    *(
        PACKAGE / "_files" / "sharded" / f"{name}.py"
        for name in ("dcp", "folder", "index", "loading", "shard_files", "tree_reading")
    ),
    *(
        PACKAGE / "_graph" / "saved" / f"{name}.py"
        for name in "dimensions folder graph_json package program_json reader structures tensors".split()
    ),
    *(PACKAGE / "_data" / f"{name}.py" for name in "coco gpt image_sizes images onerec records wire".split()),
    PACKAGE / "one_embedding" / "snapshot.py",
]
PRINTERS = {"shown", "shown_names", "title", "plain_text", "reason", "len", "_defect", "refuse"}
# Expressions that messages print as they are: numbers that were checked, tables and classes of this package,
# locations in a file, and values of the caller.
PRINTED = {
    line.strip()
    for line in """
    ' and '.join(map(str, READABLE_FORMATS))
    ' and '.join(tables)
    ', '.join((n for _, n in _FACTORIES))
    ', '.join(CHANNELS)
    ', '.join(INTERPOLATIONS)
    ', '.join(allowed)
    ', '.join(dtypes.PROTO)
    ', '.join(have) or 'none'
    ', '.join(map(str, _DECODED))
    ', '.join(readers)
    ', '.join(self._paths[self._share])
    ','.join(slices)
    '; '.join(problems[:5])
    's' * (dims != 1)
    CHECK
    COLLISIONS
    DATA
    FORMAT!r
    KEY_ELEMENTS
    LIMIT
    META
    PICKLE
    PROTOCOL_VERSION
    TENSORS
    VERSION
    _DEEPEST
    _IDENTIFIER!r
    _LIMIT
    _LONGEST_LABEL
    _SCANS
    _checksum_of(array)
    _processes.get_world_size()
    actual
    allowed // _CHANNELS
    annotation_file
    array.dtype
    array.size
    at
    backend!r
    batch_padding[0]
    begin
    begin + len(edges) - 1
    begin + len(sizes) - 1
    begin + size
    checksum
    classes
    code
    color_space!r
    content
    count
    crc
    d
    device.type!r
    dim
    dims
    documents
    done
    dtype
    dtypes.name_of(dtype)
    end
    entry.dtype
    index.LIMIT
    error
    error.strerror
    expected
    factory!r
    folder
    form
    height
    i
    index
    index!r
    interpolation_name!r
    item.__module__
    k
    key
    key!r
    lacking
    layer
    least
    leaves
    left
    left + 8
    len(data) - at
    len(view) - at
    len(view) - begin
    len(view) - done
    length
    list(reshape or ())
    list(shape)
    list_name
    location
    longest
    message
    meta['count']
    min(HEADER_LIMIT, size - 8)
    missing[0]!r
    module
    most
    n
    name
    name!r
    names
    needed
    np.dtype(dtype).name
    on_corrupt!r
    origin
    os.path.join(folder, BINARIES)
    os.path.join(folder, PROGRAM)
    own[0]
    own[1]
    package
    part
    part_name
    path
    path!r
    prefix
    prefix!r
    problem
    rank
    ranks
    real
    remove_empty
    rest
    secrets.token_hex(4)
    self._file_size
    self._left
    self._next
    self._rank
    self._size
    self.file
    self.left()
    self.offset
    self.where
    shape
    size
    size - 8 - length
    skipped
    slot.dtype
    source
    source!r
    source.ranks
    storage_bytes
    str(_check_device(device))
    str(dtype)
    str(entry.dtype)
    str(error)
    str(error).splitlines()[0]
    str(i)
    str(layout)
    str(map_location)
    str(map_location)!r
    str(part, 'utf-8')
    str(value)
    subject
    table
    target
    target.name if isinstance(target, Constructor) else title(target)
    tensor.dtype
    tensors[-1]
    tokens.path
    tuple(batch_padding)
    tuple(target)
    type(key).__module__
    undecodable
    untyped.nbytes()
    value.dtype
    version
    what
    where
    why
    width
    wire
    zlib.crc32(array.reshape(-1).view(np.uint8).data)
    zlib.crc32(body)
    """.strip().splitlines()
}


def bounded(node):
    """Whether an expression prints as bounded text: a constant, a printer, or the name of a class."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"):
        return True
    if isinstance(node, ast.IfExp):
        return bounded(node.body) and bounded(node.orelse)
    if isinstance(node, ast.BinOp):
        return bounded(node.left) and bounded(node.right)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_call and node.func.id in PRINTERS


def printed_expressions(path):
    """(line, expression) of what f-strings print, and of calls of str(), repr() and ascii()."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FormattedValue) and not bounded(node.value):
            yield node.value.lineno, ast.unparse(node.value) + ("!r" if node.conversion == ord("r") else "")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("str", "repr", "ascii", "format"):
                yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", READERS, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_message_prints_a_value_of_a_file_without_shown(path):
    unknown = [(line, text) for line, text in printed_expressions(path) if text not in PRINTED]
    assert not unknown, (
        "print it with shown(), or add it to PRINTED if its text is short whatever the file holds"
    )


def laughing(levels=40, width=2):
    value = []
    for _ in range(levels):
        value = [value] * width
    return value


class Unprintable:
    def __repr__(self):
        raise AssertionError("a message calls code of the value")

    __str__ = __repr__


@pytest.mark.parametrize(
    "value",
    [
        laughing(),
        tuple(laughing()),
        {"a": laughing()},
        10**100_000,
        "x" * 10**6,
        bytes(10**6),
        [1] * 10**6,
        {i: i for i in range(10**5)},
        Unprintable(),
        [Unprintable(), {"k": Unprintable()}],
        torch.ones(1).expand(1 << 40),
        np.ones(1000),
        "a\nb\x1b[31m\u202e",
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_value_is_shown_in_short_printable_text(value):
    text = shown(value)
    assert len(text) <= 160 and text.isprintable()


def test_plain_values_are_shown_as_python_writes_them():
    for value in (
        None,
        True,
        -3,
        2.5,
        1j,
        "text",
        b"ab",
        [1, "a"],
        (1,),
        (),
        [],
        {"k": (1, 2)},
        torch.Size([2, 3]),
    ):
        assert shown(value) == repr(tuple(value) if isinstance(value, torch.Size) else value)
    assert shown(torch.float32) == "torch.float32" and shown(dict) == "dict" and title(len) == "len"
    assert shown(list(range(9))) == "[0, 1, 2, 3, 4, 5, 6, 7, ...]" and shown({1}) == "{1}"


@pytest.mark.parametrize(
    "error", [KeyError(laughing()), ValueError(laughing()), TypeError("a\nb"), RuntimeError()]
)
def test_an_error_of_another_library_is_named_without_its_arguments(error):
    with pytest.raises(CheckpointError) as caught, named_errors("the file"):
        raise error
    assert len(str(caught.value)) < 400 and str(caught.value).startswith("the file: truncated or altered")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__

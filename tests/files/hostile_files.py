"""Hostile files of every format. Each tries to make a load run code, crash, or use unlimited memory or time.

`hostile(folder)` writes them and yields (name, path). The pickles are assembled by hand and put into each
container format: a single file, a folder, torch's zip file, torch's stream of before 2020.
"""

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

MARKER = "EXECUTED"
_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


# --------------------------------------------------------------------------- an assembler
def value(obj) -> bytes:
    """The opcodes that push a plain value."""
    return pickle.dumps(obj, 2)[2:-1]


def name(full: str) -> bytes:
    """The opcode that pushes a global."""
    module, _, attribute = full.rpartition(".")
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


class Code(bytes):
    """Opcodes, where a value is expected."""


def tuple_of(*items) -> Code:
    return Code(b"(" + b"".join(map(push, items)) + b"t")


def push(item) -> bytes:
    if isinstance(item, Code):
        return item
    if type(item) is tuple:
        return tuple_of(*item)
    if type(item) is dict:
        return b"}(" + b"".join(push(k) + push(v) for k, v in item.items()) + b"u"
    return value(item)


def call(full: str, *arguments) -> Code:
    return Code(name(full) + tuple_of(*arguments) + b"R")


def new(full: str, *arguments) -> Code:
    return Code(name(full) + tuple_of(*arguments) + b"\x81")


def build(target: Code, state) -> Code:
    return Code(target + push(state) + b"b")


def glob(full: str) -> Code:
    return Code(name(full))


def dtype(code="f4", state=(3, "<", None, None, None, -1, -1, 0)) -> Code:
    return build(call("numpy.dtype", code, False, True), state)


def array(shape, data, of=None, columns=False) -> Code:
    empty = call("numpy.core.multiarray._reconstruct", glob("numpy.ndarray"), (0,), b"b")
    return build(empty, (1, shape, dtype() if of is None else of, columns, data))


def storage(kind="FloatStorage", key="0", count=4) -> Code:
    return Code(tuple_of("storage", glob(f"torch.{kind}"), key, "cpu", count) + b"Q")


def tensor(offset=0, size=(4,), stride=(1,), of=None) -> Code:
    return call(
        "torch._utils._rebuild_tensor_v2",
        of or storage(),
        offset,
        size,
        stride,
        False,
        call("collections.OrderedDict"),
    )


def layer(module: str, **attributes) -> Code:
    state = {"_parameters": {}, "_buffers": {}, "_modules": {}, "training": True, **attributes}
    return build(new(module), state)


def _numbers_of_one_hash(count) -> bytes:
    return b"".join(value(i * (2**61 - 1)) + b"N" for i in range(1, count))


# --------------------------------------------------------------------------- pickles
def _executing() -> dict:
    command = f"touch {MARKER}"
    calls = {
        "posix.system": (command,),
        "os.system": (command,),
        "subprocess.Popen": (("touch", MARKER),),
        "builtins.eval": ("1+1",),
        "builtins.exec": ("import os",),
        "builtins.compile": ("1", "x", "eval"),
        "builtins.__import__": ("antigravity",),
        "builtins.getattr": ("a", "b"),
        "builtins.open": (MARKER, "w"),
        "builtins.input": (),
        "builtins.map": (),
        "operator.attrgetter": ("x",),
        "operator.methodcaller": ("x",),
        "functools.partial": (glob("builtins.list"),),
        "importlib.import_module": ("antigravity",),
        "pickle.loads": (b"N.",),
        "torch.load": ("x",),
        "torch.hub.load": ("a/b", "c"),
        "torch.jit.load": ("x",),
        "torch.ops.load_library": ("x",),
        "torch.utils.cpp_extension.load": ("x",),
        "torch._inductor.codecache.PyCodeCache.load": ("x",),
        "torch.fx.graph_module.reduce_graph_module": ({}, "x"),
        "oneflow.load": ("x",),
        "oneflow.hub.load": ("a/b", "c"),
        "numpy.load": ("x",),
        "numpy.memmap": (MARKER,),
        "numpy.fromfile": ("/dev/zero",),
        "pathlib.Path.touch": ("x",),
        "types.FunctionType": (),
        "types.CodeType": (),
        "ctypes.CDLL": ("x",),
        "runpy.run_path": ("x",),
        "code.interact": (),
        "pty.spawn": ("x",),
        "webbrowser.open": ("x",),
        "torch.nn.functional.relu": (1,),
        "torch.Tensor.__reduce_ex__": (1,),
        "torch.storage._load_from_bytes": (b"x",),
        "torch._utils._import_dotted_name": ("antigravity",),
        "torch.nn.modules.module.Module": (),
        "torch.nn.utils.parametrize.register_parametrization": (),
        "copyreg._reconstructor": (glob("builtins.list"), glob("builtins.object"), None),
        "weakref.ref": ({1},),
        "io.open": (MARKER, "w"),
    }
    out = {f"call {full}": call(full, *arguments) for full, arguments in calls.items()}
    out |= {
        "instance opcode": Code(b"(" + value(command) + b"iposix\nsystem\n"),
        "object opcode": Code(b"(" + name("posix.system") + value(command) + b"o"),
        "extension code": Code(b"\x82\x01"),
        "dotted name": Code(value("torch") + value("Size.__new__") + b"\x93"),
        "import by name": Code(name("antigravity.fly")),
        "call of a value": Code(value("text") + b")R"),
        "call of a dtype": Code(name("torch.float32") + b")R"),
        "new of a function": Code(name("torch._utils._rebuild_tensor_v2") + b")\x81"),
        "persistent id of a string": Code(value("x") + b"Q"),
        "change OrderedDict": build(glob("collections.OrderedDict"), {"get": 1}),
        "change Size": build(glob("torch.Size"), (None, {"numel": 1})),
        "change a function": build(glob("torch.nn.functional.relu"), {"__code__": 1}),
        "change Parameter": build(glob("torch.nn.parameter.Parameter"), {"x": 1}),
        "items of a type": Code(name("collections.OrderedDict") + value("x") + b"Ns"),
        "append to a tensor": Code(call("torch.nn.parameter.Parameter") + b"Na"),
        "default factory": Code(call("collections.defaultdict", glob("torch._utils._rebuild_tensor_v2"))),
        "dunder of a namespace": build(new("argparse.Namespace"), {"__class__": 1}),
        "attribute data": call(
            "torch._utils._rebuild_parameter_with_state",
            tensor(),
            True,
            call("collections.OrderedDict"),
            {"data": 1},
        ),
        "attribute backward hooks": call(
            "torch._utils._rebuild_parameter_with_state",
            tensor(),
            True,
            call("collections.OrderedDict"),
            {"_backward_hooks": {1: 2}},
        ),
        "backward hooks": call("torch._utils._rebuild_parameter", tensor(), True, {1: "x"}),
        "from type with a function": call(
            "torch._tensor._rebuild_from_type_v2", glob("posix.system"), glob("torch.Tensor"), (command,), {}
        ),
        "from type with set": call(
            "torch._tensor._rebuild_from_type_v2", glob("builtins.set"), glob("torch.Tensor"), (), {}
        ),
        "forward of a layer": layer(
            "torch.nn.modules.activation.ReLU", forward=glob("torch.nn.functional.relu")
        ),
        "call of a layer": layer("oneflow.nn.modules.activation.ReLU", __call__=1),
        "compiled call of a layer": layer(
            "torch.nn.modules.activation.ReLU", _compiled_call_impl=glob("torch.nn.functional.relu")
        ),
        "class of a lazy layer": layer(
            "torch.nn.modules.linear.LazyLinear", cls_to_become=glob("builtins.set")
        ),
        "attribute over a parameter": layer(
            "torch.nn.modules.linear.Linear", _parameters={"weight": None}, weight=1
        ),
        "reader that opens files": layer("oneflow.nn.modules.dataset.COCOReader"),
        "items of an OrderedDict": build(
            call("collections.OrderedDict"), {"items": glob("torch.nn.functional.relu")}
        ),
        "hooks of a layer": layer(
            "torch.nn.modules.activation.ReLU",
            _forward_hooks=Code(b"}" + value(1) + name("torch.nn.functional.relu") + b"s"),
        ),
    }
    return out


def _crashing() -> dict:
    objects = dtype("O8", (3, "|", None, None, None, -1, -1, 63))
    plain = call("numpy.dtype", "f4", False, True)
    deep_tuple = Code(b"N" + b"\x85" * 200_000)
    return {
        "object dtype": objects,
        "object dtype without flags": build(
            call("numpy.dtype", "V8", False, True), (3, "|", None, ("a",), {"a": (objects, 0)}, 8, 1, 0)
        ),
        "field beyond the item": build(
            call("numpy.dtype", "V4", False, True),
            (3, "|", None, ("a",), {"a": (dtype("f8"), 1000)}, 4, 1, 0),
        ),
        "subarray beyond the item": build(
            call("numpy.dtype", "V4", False, True), (3, "|", (dtype(), (1000,)), None, None, 4, 1, 0)
        ),
        "dtype of size 0": build(plain, (3, "<", None, None, None, 0, 0, 0)),
        "dtype of negative size": build(
            call("numpy.dtype", "U1", False, True), (3, "<", None, None, None, -5, 4, 8)
        ),
        "dtype with metadata": build(plain, (4, "<", None, None, None, -1, -1, 0, {"x": 1})),
        "dtype state of text": build(plain, "text"),
        "dtype without state": plain,
        "array without state": call("numpy.core.multiarray._reconstruct", glob("numpy.ndarray"), (0,), b"b"),
        "array of a list": call("numpy.core.multiarray._reconstruct", glob("builtins.list"), (0,), b"b"),
        "array of objects": array((2,), [1, 2], objects),
        "array of short bytes": array((1000,), b"abcd"),
        "array of long bytes": array((1,), b"abcdefgh"),
        "array of negative shape": array((-1,), b"abcd"),
        "array of a huge shape": array((2**40, 2**40), b"abcd"),
        "array of shape (0, huge)": array((0, 2**61), b""),
        "array of text as bytes": array((1,), "abcd"),
        "array of 40 dimensions": array((1,) * 40, b"abcd"),
        "array built twice": build(array((1,), b"abcd"), (1, (1000000,), dtype(), False, b"abcd")),
        "frombuffer beyond": call("numpy.core.numeric._frombuffer", b"abcd", dtype(), (1000,), "C"),
        "frombuffer of a number": call("numpy.core.numeric._frombuffer", 3, dtype(), (1,), "C"),
        "scalar of short bytes": call("numpy.core.multiarray.scalar", dtype("f8"), b"a"),
        "scalar of objects": call("numpy.core.multiarray.scalar", objects, b"12345678"),
        "tensor beyond its storage": tensor(size=(10**6,)),
        "tensor beyond by stride": tensor(size=(2, 2), stride=(10**9, 1)),
        "tensor beyond by offset": tensor(offset=10**12, size=(1,)),
        "tensor of negative stride": tensor(stride=(-1,)),
        "tensor of negative offset": tensor(offset=-4),
        "tensor of negative size": tensor(size=(-4,)),
        "tensor of overflowing size": tensor(size=(2**32, 2**32), stride=(0, 0)),
        "tensor of other rank": tensor(size=(2, 2), stride=(1,)),
        "tensor of a size of text": tensor(size=("4",)),
        "tensor of no storage": tensor(of=Code(value([1, 2]))),
        "tensor v3 of a wider dtype": call(
            "torch._utils._rebuild_tensor_v3",
            storage(),
            0,
            (4,),
            (1,),
            False,
            call("collections.OrderedDict"),
            glob("torch.complex128"),
        ),
        "storage of more elements": tensor(of=storage(count=10**6), size=(10**6,)),
        "storage of 2**62 elements": tensor(of=storage(count=2**62)),
        "storage of negative elements": tensor(of=storage(count=-1)),
        "storage of no member": tensor(of=storage(key="../../etc/passwd")),
        "legacy tensor of a storage": build(new("torch.Tensor"), (storage(), 0, (10**6,), (1,))),
        "quantized tensor of a huge size": call(
            "torch._utils._rebuild_qtensor",
            storage("QInt8Storage", "b"),
            0,
            (10**12,),
            (0,),
            (glob("torch.per_tensor_affine"), 0.5, 0),
            False,
            None,
        ),
        "quantized along no axis": call(
            "torch._utils._rebuild_qtensor",
            storage("QInt8Storage", "b"),
            0,
            (4,),
            (1,),
            (glob("torch.per_channel_affine"), [0.5], [0], 7),
            False,
            None,
        ),
        "sparse tensor with indices beyond": call(
            "torch._utils._rebuild_sparse_tensor",
            glob("torch.sparse_coo"),
            (tensor(of=storage("LongStorage", "i", 4), size=(1, 4), stride=(4, 1)), tensor(), (2,)),
        ),
        "sparse rows beyond": call(
            "torch._utils._rebuild_sparse_tensor",
            glob("torch.sparse_csr"),
            (
                tensor(of=storage("LongStorage", "i", 4)),
                tensor(of=storage("LongStorage", "i", 4)),
                tensor(),
                (3, 10**9),
            ),
        ),
        "nested tensor beyond": call(
            "torch._utils._rebuild_nested_tensor",
            tensor(),
            tensor(of=storage("LongStorage", "i", 4), size=(2, 2), stride=(2, 1)),
            tensor(of=storage("LongStorage", "i", 4), size=(2, 2), stride=(2, 1)),
            tensor(of=storage("LongStorage", "i", 4), size=(2,)),
        ),
        "conj of text": call(
            "torch._utils._rebuild_tensor_v2", storage(), 0, (4,), (1,), False, None, {"conj": "x"}
        ),
        "key of nested tuples": Code(b"}" + deep_tuple + b"Ns"),
        "set of nested tuples": Code(b"\x8f(" + deep_tuple + b"\x90"),
        "frozenset of nested tuples": Code(b"(" + deep_tuple + b"\x91"),
        "nested lists": Code(b"]" * 100_000 + b"a" * 99_999),
        "nested dicts": Code(b"(" * 1000 + b"}" + b"t" * 1000),
        "list within itself": Code(b"]q\x00h\x00a"),
        "layer within itself": Code(
            new("torch.nn.modules.container.Sequential")
            + b"q\x07}"
            + value("_modules")
            + b"}"
            + value("0")
            + b"h\x07ss"
            + b"b"
        ),
        "key of a tensor": Code(b"}" + tensor() + b"Ns"),
        "size of text": call("torch.Size", ("a", "b")),
        "size of huge numbers": call("torch.Size", (2**70,)),
        "device of no kind": call("torch.device", "x" * 1000),
        "uuid of text": build(new("uuid.UUID"), {"int": "x"}),
        "uuid without state": new("uuid.UUID"),
        "date of wrong bytes": call("datetime.datetime", b"\xff" * 10),
        "date of short bytes": call("datetime.datetime", b"\xff"),
        "time of wrong bytes": call("datetime.time", b"\x7f" * 6),
        "zone of a huge offset": call("datetime.timezone", call("datetime.timedelta", 10**8)),
        "layer of no dict": build(new("torch.nn.modules.linear.Linear"), [1]),
        "layer of wrong tables": layer("torch.nn.modules.linear.Linear", _parameters=[1]),
        "layer of a wrong parameter": layer("oneflow.nn.modules.linear.Linear", _parameters={"weight": 3}),
        "convolution of text": layer(
            "oneflow.nn.modules.conv.Conv2d", kernel_size="abc", padding=3, stride=2.5
        ),
        "layer without state": new("torch.nn.modules.linear.Linear"),
        "oneflow tensor without state": new("oneflow.Tensor"),
        "oneflow tensor of text": build(new("oneflow.Tensor"), {"data": "text"}),
        "oneflow dtype of text": build(new("oneflow._oneflow_internal.dtype"), "x"),
        "oneflow dtype of a list": build(new("oneflow._oneflow_internal.dtype"), []),
        "placement of text": build(new("oneflow.placement"), {"type": "abc", "ranks": "x"}),
        "placement of no dict": build(new("oneflow.placement"), 3),
        "sbp of no tuple": build(new("oneflow.sbp.sbp"), [1, 2, 3]),
        "sbp of a list": build(new("oneflow.sbp.sbp"), ([], 1)),
        "tensor folder above": build(new("oneflow.Tensor"), {"path": "../../etc"}),
        "tensor folder of a number": build(new("oneflow.Tensor"), {"path": 7}),
        "pop from nothing": Code(b"000"),
        "memo of nothing": Code(b"h\x09"),
        "mark of nothing": Code(b"t"),
        "odd items": Code(b"}(K\x01u"),
        "protocol 99": Code(b"\x80\x63N"),
        "protocol 0": Code(b"I1\n"),
    }


def laughing_lists(levels=34, width=2) -> Code:
    return Code(
        b"]q\0"
        + b"".join(b"0](" + (b"h" + bytes([i])) * width + b"eq" + bytes([i + 1]) for i in range(levels))
    )


def laughing_tuples(levels=34, width=2) -> Code:
    return Code(
        b")q\0"
        + b"".join(b"0(" + (b"h" + bytes([i])) * width + b"tq" + bytes([i + 1]) for i in range(levels))
    )


def _exhausting() -> dict:
    gigabytes = 4 << 30
    bomb = b"]q\x00" + b"".join(b"](" + (b"h" + bytes([i])) * 10 + b"eq" + bytes([i + 1]) for i in range(40))
    return {
        "bytearray of a number": call("builtins.bytearray", gigabytes),
        "bytes of a number": call("builtins.bytes", gigabytes),
        "list of a range": call("builtins.list", call("builtins.range", 10**9)),
        "set of a range": call("builtins.set", call("builtins.range", 10**8)),
        "tuple of a range": call("builtins.tuple", call("builtins.range", 10**9)),
        "deque of a range": call("collections.deque", call("builtins.range", 10**9)),
        "counter of a range": call("collections.Counter", call("builtins.range", 10**8)),
        "text of a number": call("builtins.str", 10**4000),
        "number of digits": call("builtins.int", "9" * 10**6),
        "power": call("builtins.pow", 10, 10**9),
        "fraction with an exponent": call("fractions.Fraction", "1e99999999"),
        "fraction of digits": call("fractions.Fraction", "1" * 10**6),
        "decimal of digits": call("decimal.Decimal", "1" * 10**6),
        "complex of text": call("builtins.complex", "1" * 10**6),
        "punycode": call("_codecs.encode", "\u00fc" * 20000, "punycode"),
        "idna": call("_codecs.encode", "\u00fc" * 20000, "idna"),
        "zlib": call("_codecs.decode", zlib.compress(bytes(10**7)), "zlib"),
        "unicode escape": call("_codecs.encode", "\U0001f600" * 10**5, "unicode_escape"),
        "Linear(20000, 20000)": call("torch.nn.modules.linear.Linear", 20000, 20000),
        "new Linear(20000, 20000)": new("torch.nn.modules.linear.Linear", 20000, 20000),
        "LSTM of 20000 layers": call("torch.nn.modules.rnn.LSTM", 10, 10, 20000),
        "oneflow LSTM of a million layers": layer(
            "oneflow.nn.modules.rnn.LSTM",
            input_size=10,
            hidden_size=10,
            num_layers=10**6,
            bias=True,
            bidirectional=True,
        ),
        "oneflow Linear of a billion": layer(
            "oneflow.nn.modules.linear.Linear", in_features=10**9, out_features=10**9
        ),
        "Transformer of many layers": layer(
            "oneflow.nn.modules.transformer.Transformer", num_encoder_layers=10**6, d_model=512
        ),
        "Embedding of a billion": layer(
            "oneflow.nn.modules.sparse.Embedding", num_embeddings=10**10, embedding_dim=10**3
        ),
        "FloatTensor of a number": call("torch.FloatTensor", 10**9),
        "Tensor of sizes": call("torch.Tensor", 10**5, 10**5),
        "new Tensor of sizes": new("torch.Tensor", 10**5, 10**5),
        "FloatStorage of a number": call("torch.FloatStorage", 10**9),
        "UntypedStorage of a number": call("torch.storage.UntypedStorage", 10**10),
        "Parameter of a list": call("torch.nn.parameter.Parameter", [1.0] * 100),
        "zeros": call("torch.zeros", 10**10),
        "numpy zeros": call("numpy.zeros", 10**10),
        "numpy array of a shape": call("numpy.ndarray", (10**10,)),
        "numpy text of a billion": call(
            "numpy.core.multiarray.scalar", call("numpy.dtype", "U999999999", False, True), b""
        ),
        "one array a thousand times": Code(
            value(bytes(10**6))
            + b"q\x01]("
            + b"".join(array((250000,), Code(b"h\x01")) for _ in range(1000))
            + b"e"
        ),
        "one tensor a thousand times": Code(
            array((250000,), bytes(10**6))
            + b"q\x01]("
            + b"".join(
                build(new("oneflow.Tensor"), Code(b"}" + value("data") + b"h\x01s")) for _ in range(1000)
            )
            + b"e"
        ),
        "one tensor made wide": Code(
            b"]("
            + build(
                new("oneflow.Tensor"),
                Code(
                    b"}("
                    + value("data")
                    + array((10**7,), bytes(10**7), dtype("u1"))
                    + value("dtype")
                    + name("torch.complex128")
                    + b"u"
                ),
            )
            * 4
            + b"e"
        ),
        "bytearrays of one string": Code(
            value(bytes(10**6)) + b"q\x01](" + (name("builtins.bytearray") + b"h\x01\x85R") * 2000 + b"e"
        ),
        "numbers of one hash": Code(b"}(" + _numbers_of_one_hash(50_000) + b"u"),
        "numbers of one hash one by one": Code(
            b"}" + b"".join(value(i * (2**61 - 1)) + b"Ns" for i in range(1, 50_000))
        ),
        "set of one hash": Code(
            b"\x8f(" + b"".join(value(i * (2**61 - 1)) for i in range(1, 50_000)) + b"\x90"
        ),
        "counter of one hash": call(
            "builtins.set", Code(b"](" + b"".join(value(i * (2**61 - 1)) for i in range(1, 50_000)) + b"e")
        ),
        "long key many times": Code(tuple_of(*range(50_000)) + b"q\x01}" + b"h\x01Ns" * 50_000),
        "laughing lists": Code(bomb),
        "laughing state of an SBP": Code(new("oneflow.sbp.sbp") + laughing_lists() + b"b"),
        "laughing state of a placement": Code(new("oneflow.placement") + laughing_lists() + b"b"),
        "laughing state of a dtype": build(
            call("numpy.dtype", "f4", False, True), (3, "<", laughing_lists(), None, None, -1, -1, 0)
        ),
        "laughing name of a dtype": call("numpy.dtype", laughing_lists(), False, True),
        "laughing shape of an array": array(laughing_tuples(), b"abcd"),
        "laughing size of a tensor": tensor(size=laughing_tuples()),
        "laughing persistent id": Code(tuple_of("storage", laughing_lists()) + b"Q"),
        "laughing location of a storage": Code(
            tuple_of("storage", glob("torch.FloatStorage"), "0", laughing_lists(), 4) + b"Q"
        ),
        "laughing flags of a tensor": call(
            "torch._utils._rebuild_tensor_v2", storage(), 0, (4,), (1,), False, None, laughing_lists()
        ),
        "laughing requires_grad": call(
            "torch._utils._rebuild_tensor_v2", storage(), 0, (4,), (1,), laughing_lists(), None
        ),
        "laughing attribute name": call(
            "torch._utils._rebuild_parameter_with_state",
            tensor(),
            True,
            call("collections.OrderedDict"),
            Code(b"}" + laughing_tuples(12) + b"Ns"),
        ),
        "laughing layout": call("torch.serialization._get_layout", laughing_tuples()),
        "deep layout": call("torch.serialization._get_layout", Code(b"N" + b"\x85" * 200_000)),
        "laughing quantizer": call(
            "torch._utils._rebuild_qtensor",
            storage("QInt8Storage", "b"),
            0,
            (4,),
            (1,),
            (laughing_lists(), 0.5, 0),
            False,
            None,
        ),
        "laughing scales": call(
            "torch._utils._rebuild_qtensor",
            storage("QInt8Storage", "b"),
            0,
            (4,),
            (1,),
            (glob("torch.per_channel_affine"), laughing_lists(16, 64), [0], 0),
            False,
            None,
        ),
        "laughing key": Code(b"}" + laughing_tuples(15, 64) + b"Ns"),
        "laughing attribute of a layer": layer("torch.nn.modules.activation.ReLU", x=laughing_lists(4, 4096)),
        "laughing data": Code(new("oneflow.Tensor") + b"}" + value("data") + laughing_lists() + b"sb"),
        "laughing protocol version": Code(
            b"}(" + value("protocol_version") + laughing_lists() + value("data") + b"Nu"
        ),
        "laughing arguments": Code(name("builtins.bytearray") + laughing_tuples() + b"R"),
        "memo": Code(b"N" + b"".join(b"r" + struct.pack("<I", i) for i in range(400_000))),
        "comparison of a wide tensor": layer(
            "oneflow.nn.modules.pooling.AvgPool2d", divisor_override=tensor(size=(1 << 40,), stride=(0,))
        ),
        "scales of an expanded tensor": call(
            "torch._utils._rebuild_qtensor",
            storage("QInt8Storage", "b"),
            0,
            (1 << 30, 0),
            (0, 1),
            (
                glob("torch.per_channel_affine"),
                tensor(size=(1 << 30,), stride=(0,)),
                tensor(size=(1 << 30,), stride=(0,)),
                0,
            ),
            False,
            None,
        ),
        "sparse tensor of an expanded tensor": call(
            "torch._utils._rebuild_sparse_tensor",
            glob("torch.sparse_coo"),
            (
                tensor(of=storage("LongStorage", "i", 4), size=(1, 1 << 31), stride=(0, 0)),
                tensor(size=(1 << 31,), stride=(0,)),
                (2,),
            ),
        ),
        "empty lists": Code(b"](" + b"]" * 10**6 + b"e"),
        "empty sets": Code(b"](" + b"\x8f" * 10**6 + b"e"),
        "marks": Code(b"(" * 10**6),
        "announced text": Code(b"X\xff\xff\xff\x7fabc"),
        "announced long text": Code(b"\x8d" + struct.pack("<Q", 1 << 40) + b"abc"),
        "announced bytes": Code(b"\x8e" + struct.pack("<Q", 1 << 40) + b"abc"),
        "announced bytearray": Code(b"\x96" + struct.pack("<Q", 1 << 34) + b"abc"),
        "announced frame": Code(b"\x95" + struct.pack("<Q", 1 << 40) + b"N"),
        "announced number": Code(b"\x8b" + struct.pack("<i", 1 << 30) + b"abc"),
        "negative number size": Code(b"\x8b" + struct.pack("<i", -5) + b"abc"),
        "laughing layers": layer(
            "oneflow.nn.modules.container.Sequential", _modules={str(i): None for i in range(10)}
        ),
    }


def pickles() -> dict:
    """{name: opcodes of one value} of all hostile pickles."""
    return {**_executing(), **_crashing(), **_exhausting()}


# --------------------------------------------------------------------------- containers of pickles
# the storages that the pickles name
VALUES = {
    "0": bytes(16),
    "b": bytes(8),
    "i": struct.pack("<4q", 0, 1, 99, 10**12),
}


def single_file(path, body):
    path.write_bytes(b"\x80\x04" + body + b".")


def checkpoint_folder(path, body):
    path.mkdir()
    (path / "pickled_data").write_bytes(b"\x80\x04" + body + b".")


def torch_zip(path, body, packed=zipfile.ZIP_STORED, members=()):
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + body + b".")
        archive.writestr("archive/version", b"3\n")
        for key, data in VALUES.items():
            archive.writestr(f"archive/data/{key}", data)
        for member, data in members:
            archive.writestr(member, data)


def torch_stream(path, body):
    storages = b"".join(struct.pack("<q", 4) + data for data in VALUES.values())
    # the stream names a sixth field, the part of a storage
    path.write_bytes(
        _MAGIC
        + value_file(1001)
        + value_file({})
        + b"\x80\x02"
        + body.replace(b"tQ", b"NtQ")
        + b"."
        + value_file(list(VALUES))
        + storages
    )


def value_file(obj) -> bytes:
    return pickle.dumps(obj, 2)


CONTAINERS = {"pickle": single_file, "folder": checkpoint_folder, "zip": torch_zip, "stream": torch_stream}


def hostile_pickles(folder):
    for container, write in CONTAINERS.items():
        for title, body in pickles().items():
            path = folder / f"{container} {title}".replace("/", "_")
            write(path, body)
            yield path.name, path


# --------------------------------------------------------------------------- torch zip files
def hostile_zips(folder):
    good = tensor()
    path = folder / "zip bomb of a pickle"
    torch_zip(path, Code(value("x" * (100 << 20))), zipfile.ZIP_DEFLATED)
    yield path.name, path
    path = folder / "zip bomb of sets"
    torch_zip(path, Code(b"](" + b"\x8f" * (20 << 20) + b"e"), zipfile.ZIP_DEFLATED)
    yield path.name, path
    path = folder / "zip bomb of a storage"
    VALUES["z"] = bytes(120 << 20)
    torch_zip(path, tensor(of=storage(key="z", count=30 << 20)), zipfile.ZIP_DEFLATED)
    del VALUES["z"]
    yield path.name, path
    for title, members in (
        ("two pickles", [("other/data.pkl", b"N.")]),
        ("a script", [("archive/constants.pkl", b"N.")]),
        ("a name above", [("../../evil", b"x")]),
    ):
        path = folder / f"zip with {title}"
        torch_zip(path, good, members=members)
        yield path.name, path
    torch_zip(folder / "zip", good)
    body = (folder / "zip").read_bytes()
    for at in range(0, 8):  # sizes and offsets of the central directory of each member
        for offset, size, declared in (
            (20, 4, 0xFFFFFFFF),
            (24, 4, 0x7FFFFFFF),
            (42, 4, 0),
            (28, 2, 0xFFFF),
            (8, 2, 1),
            (10, 2, 14),
        ):
            altered, start = bytearray(body), 0
            for _ in range(at % 5 + 1):
                start = body.index(b"PK\x01\x02", start + 1)
            altered[start + offset : start + offset + size] = declared.to_bytes(size, "little")
            path = folder / f"zip directory {at} {offset}"
            path.write_bytes(altered)
            yield path.name, path


# --------------------------------------------------------------------------- safetensors
def _safetensors(header, data=b"", length=None) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data


def hostile_safetensors(folder):
    def entry(begin=0, end=16, shape=(4,), of="F32"):
        return {"dtype": of, "shape": list(shape), "data_offsets": [begin, end]}

    values = bytes(16)
    files = {
        "overlap": _safetensors({"a": entry(), "b": entry()}, values),
        "overlap a thousand times": _safetensors(
            {str(i): entry(0, 1 << 20, (1 << 18,)) for i in range(2000)}, bytes(1 << 20)
        ),
        "gap": _safetensors({"a": entry(4, 20)}, bytes(20)),
        "rest": _safetensors({"a": entry()}, bytes(20)),
        "deep": _safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", values),
        "deep objects": _safetensors(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, values),
        "two names": _safetensors(
            b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", values
        ),
        "huge header": _safetensors({"a": entry()}, values, length=1 << 60),
        "long header": _safetensors({"a": entry()}, values, length=99),
        "negative": _safetensors({"a": entry(-16, 0)}, values),
        "backwards": _safetensors({"a": entry(16, 0)}, values),
        "shape of text": _safetensors({"a": {**entry(), "shape": "4"}}, values),
        "shape of floats": _safetensors({"a": {**entry(), "shape": [4.0]}}, values),
        "shape of bools": _safetensors({"a": {**entry(0, 4), "shape": [True]}}, bytes(4)),
        "negative shape": _safetensors({"a": entry(shape=(-2, -2))}, values),
        "overflowing shape": _safetensors({"a": entry(0, 0, (2**33, 2**31, 0))}, b""),
        "huge shape": _safetensors({"a": entry(shape=(2**62, 4))}, values),
        "many dimensions": _safetensors({"a": entry(0, 4, (1,) * 100_000)}, bytes(4)),
        "no dtype": _safetensors({"a": {"shape": [4], "data_offsets": [0, 16]}}, values),
        "dtype of a list": _safetensors({"a": {**entry(), "dtype": ["F32"]}}, values),
        "dtype of no kind": _safetensors({"a": entry(of="F33")}, values),
        "more keys": _safetensors({"a": {**entry(), "x": 1}}, values),
        "entry of a number": _safetensors({"a": 3}, values),
        "entry of null": _safetensors({"a": None}, values),
        "offsets of one": _safetensors({"a": {**entry(), "data_offsets": [0]}}, values),
        "offsets of three": _safetensors({"a": {**entry(), "data_offsets": [0, 16, 16]}}, values),
        "offsets of text": _safetensors({"a": {**entry(), "data_offsets": ["0", "16"]}}, values),
        "metadata of numbers": _safetensors({"__metadata__": {"x": 1}, "a": entry()}, values),
        "metadata of a list": _safetensors({"__metadata__": [1], "a": entry()}, values),
        "no utf-8": _safetensors(b'{"\xff\xfe": 1}', values),
        "infinite": _safetensors(b'{"a": Infinity}', values),
        "digits": _safetensors(
            b'{"a": {"dtype": "F32", "shape": [' + b"9" * 10_000 + b'], "data_offsets": [0, 16]}}', values
        ),
        "list": _safetensors(b"{} []  ", values),
        "surrogate": _safetensors(b'{"\\ud800": ' + json.dumps(entry()).encode() + b"}", values),
    }
    for title, body in files.items():
        path = folder / f"{title}.safetensors"
        path.write_bytes(body)
        yield path.name, path


# --------------------------------------------------------------------------- folders
def hostile_folders(folder):
    good = build(new("oneflow.Tensor"), {"path": "tensor_0"})
    metas = {
        "no meta": None,
        "empty meta": b"",
        "text": b"hello",
        "negative": b"shape {\n  dim: -4\n}\ndata_type: kFloat\n",
        "huge": b"shape {\n  dim: 99999999999999999999\n}\ndata_type: kFloat\n",
        "empty and huge": b"shape {\n dim: 0\n dim: 9223372036854775807\n}\ndata_type: kFloat\n",
        "digits": b"shape {\n dim: " + b"9" * 6000 + b"\n}\ndata_type: kFloat\n",
        "many": b"shape {\n" + b"dim: 1\n" * 5000 + b"}\ndata_type: kFloat\n",
        "no type": b"shape {\n  dim: 4\n}\n",
        "other type": b"shape {\n  dim: 4\n}\ndata_type: kOFRecord\n",
        "bytes": bytes(range(256)),
        "nested": b"shape { shape { dim: 4 } }",
        "digits of another script": "shape { dim: \u0664 } data_type: kFloat".encode(),
    }
    for title, meta in metas.items():
        path = folder / f"folder {title}"
        checkpoint_folder(path, good)
        (path / "tensor_0").mkdir()
        (path / "tensor_0" / "out").write_bytes(bytes(16))
        if meta is not None:
            (path / "tensor_0" / "meta").write_bytes(meta)
        yield path.name, path
    yield from _linked_folders(folder, good)
    path = folder / "folder read again and again"
    checkpoint_folder(path, Code(b"](" + good * 2000 + b"e"))
    (path / "tensor_0").mkdir()
    (path / "tensor_0" / "out").write_bytes(bytes(4 << 20))
    (path / "tensor_0" / "meta").write_bytes(b"shape {\n  dim: 1048576\n}\ndata_type: kFloat\n")
    yield path.name, path


def _linked_folders(folder, good):
    secret = folder / "secret"
    secret.mkdir()
    (secret / "meta").write_bytes(b"shape {\n  dim: 4\n}\ndata_type: kFloat\n")
    (secret / "out").write_bytes(b"secret  secret  ")
    for title in ("folder", "out", "meta", "fifo", "device", "directory", "loop"):
        path = folder / f"folder linked {title}"
        checkpoint_folder(path, good)
        inner = path / "tensor_0"
        if title == "folder":
            inner.symlink_to(secret)
        else:
            inner.mkdir()
            for part in ("meta", "out"):
                (inner / part).write_bytes((secret / part).read_bytes())
            target = inner / ("meta" if title == "meta" else "out")
            target.unlink()
            if title == "fifo":
                os.mkfifo(target)
            elif title == "directory":
                target.mkdir()
            else:
                target.symlink_to({"device": "/dev/zero", "loop": target}.get(title, secret / target.name))
        yield path.name, path
    path = folder / "folder linked pickle"
    path.mkdir()
    (folder / "secret_pickle").write_bytes(b"\x80\x04" + value("secret") + b".")
    (path / "pickled_data").symlink_to(folder / "secret_pickle")
    yield path.name, path
    path = folder / "folder linked variables"
    path.mkdir()
    (path / "snapshot_done").touch()
    (path / "weight").symlink_to(secret)
    yield path.name, path


# --------------------------------------------------------------------------- others
def hostile_others(folder):
    path = folder / "tar of a torch file"
    with tarfile.open(path, "w") as archive:
        for member, data in (
            ("storages", b"\x80\x02K\x00."),
            ("tensors", b"\x80\x02K\x00."),
            ("pickle", b"\x80\x02" + call("posix.system", f"touch {MARKER}") + b"."),
        ):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    yield path.name, path
    path = folder / "tar that begins as a stream"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo(_MAGIC.decode("latin-1")), io.BytesIO())
    yield path.name, path
    streams = {
        "no protocol": _MAGIC,
        "other protocol": _MAGIC + value_file(99),
        "no object": _MAGIC + value_file(1001) + value_file({}),
        "keys of no list": _MAGIC + value_file(1001) + value_file({}) + value_file(1) + value_file(3),
        "keys of nothing": _MAGIC + value_file(1001) + value_file({}) + value_file(1) + value_file(["x"]),
    }
    for title, body in streams.items():
        path = folder / f"stream of {title}"
        path.write_bytes(body)
        yield path.name, path


def hostile(folder):
    """Write all hostile files below `folder`; yield (name, path) of each."""
    for make in (hostile_pickles, hostile_zips, hostile_safetensors, hostile_folders, hostile_others):
        inner = folder / make.__name__
        inner.mkdir(parents=True)
        yield from make(inner)

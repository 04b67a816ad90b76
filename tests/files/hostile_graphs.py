"""Saved graphs that attack their reader: hostile_graphs(marker) yields (name, files) for each.

`files` maps the names in the folder to bytes, or to a Link. A payload that runs creates the file `marker`.
None of these graphs may load, except those named in CALLED. These are valid, and calling them must give an
ordinary error or result.
"""

import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from dataclasses import dataclass

import torch

import oneflow as flow
import oneflow.nn as nn

CALLED = {"call_full_of_a_terabyte", "call_of_shapes_that_do_not_fit", "call_pow_of_large_integers"}
X = torch.linspace(-1, 1, 12).reshape(3, 4)


@dataclass(frozen=True)
class Link:
    """A symbolic link in the folder."""

    target: str


class Infer(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2)).eval()
        self.config.set_backend("aten")

    def build(self, x, scale=2.0):
        return {"logits": self.model(x).sum(1, keepdim=True) * scale, "two": 2}


class Train(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 2)
        optimizer = flow.optim.SGD(self.model.to(nn.Module).parameters(), lr=0.1, momentum=0.9)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, step_size=2))
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).pow(2).mean()
        loss.backward()
        return loss


class Masked(nn.Graph):
    def __init__(self):
        super().__init__()
        self.config.set_backend("aten")

    def build(self, x):
        rows = x[x[:, 0] > 0]
        return rows.mean() if rows.shape[0] > 1 else rows.sum()


def legit_graphs():
    """{name: files} of the valid graphs from which the hostile graphs are derived."""
    torch.manual_seed(0)
    saved = {}
    for name, graph in (("infer", Infer()), ("train", Train()), ("masked", Masked())):
        for call in (X, -X + 0.5, X.flip(0) * 2):
            graph(call)
        with tempfile.TemporaryDirectory() as folder:
            graph.save(os.path.join(folder, name))
            saved[name] = read_folder(os.path.join(folder, name))
    return saved


def read_folder(folder):
    content_of = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            content_of[name] = file.read()
    return content_of


def write_folder(folder, files):
    os.makedirs(folder)
    for name, content in files.items():
        path = os.path.join(folder, name)
        if isinstance(content, Link):
            os.symlink(content.target, path)
        else:
            with open(path, "wb") as file:
                file.write(content)


def hostile_graphs(marker="/nonexistent/marker"):
    """(name, files) of each hostile graph."""
    legit = legit_graphs()
    for name, base, edit in _document_edits(marker):
        document = json.loads(legit[base]["program.json"])
        document.pop("crc32")
        edit(document)
        yield name, {**legit[base], "program.json": json.dumps(document).encode()}
    text = legit["infer"]["program.json"]
    for name, data in _texts(text):
        yield name, {**legit["infer"], "program.json": data}
    for name, data in _tensor_files(legit["infer"]["tensors.pt"], marker):
        yield name, {**legit["infer"], "tensors.pt": data}
    for name, files in _folders(legit["infer"]):
        yield name, files


# --------------------------------------------------------------------------- edits of program.json
def _set(*path, to):
    def edit(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = to

    return edit


def _call(document, name=None):
    """The first node that calls an operator (of this name)."""
    return next(
        n for n in document["nodes"] if n["op"] == "call" and (name is None or n["target"].startswith(name))
    )


def _in_call(key, value, name=None):
    return lambda document: _call(document, name).update({key: value})


def _in_slot(key, value, role="param"):
    return lambda document: next(s for s in document["slots"] if s["role"] == role).update({key: value})


def _in_schedule(key, value):
    return lambda document: document["schedules"][0].update({key: value})


def _spec(kind, context, children=0):
    leaf = {"type": None, "context": None, "children_spec": []}
    return json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf] * children}])


def _nested(depth, inner=1):
    for _ in range(depth):
        inner = [inner]
    return inner


def _document_edits(marker):
    payload = f"__import__('os').system('touch {marker}')"
    yield from _code_edits(payload)
    yield from _target_edits()
    yield from _structure_edits(marker)
    yield from _value_edits()
    yield from _node_edits()
    yield from _schedule_edits()


def _code_edits(payload):
    sum_ = "aten::sum"
    yield "code_in_keyword", "infer", _in_call("kwargs", {f"dtype={payload} and None, keepdim": True}, sum_)
    yield "code_in_keyword_of_node", "infer", _in_call("kwargs", {f"x={payload}, **dict": {"tuple": []}})
    yield "keyword_that_is_a_word_of_python", "infer", _in_call("kwargs", {"lambda": 1}, sum_)
    yield "keyword_unknown", "infer", _in_call("kwargs", {"nothing": 1}, sum_)
    yield "keyword_twice", "infer", _in_call("kwargs", {"self": 1}, sum_)
    yield "code_in_name_of_node", "infer", _in_call("name", f"a={payload};b")
    yield "code_in_name_of_placeholder", "infer", lambda d: d["nodes"][0].update(name=f"x={payload}")
    yield "newline_in_name_of_node", "infer", _in_call("name", f"a\n    {payload}\n    b")
    yield "code_in_name_of_slot", "infer", _in_slot("name", f"w\n{payload}\n#")
    yield "code_in_name_of_graph", "infer", _set("name", to=f"g():\n {payload}\ndef f")
    yield "code_in_module", "infer", _in_call("module", f"a\n    {payload}")
    yield "code_in_phase", "infer", _in_call("phase", f"forward\n    {payload}")
    yield "code_in_assertion", "masked", lambda d: _set_assertion(d, f'"); system("touch {payload}"); //')
    yield "backslash_in_assertion", "masked", lambda d: _set_assertion(d, "a\\")
    yield "newline_in_assertion", "masked", lambda d: _set_assertion(d, f"a\n{payload}")
    yield "number_for_an_assertion", "masked", lambda d: _set_assertion(d, 3)
    yield "code_in_mode", "infer", _in_call("kwargs", {"approximate": f"tanh'); {payload} #"}, "aten::gelu")
    yield (
        "code_in_constant_name",
        "infer",
        lambda d: d["nodes"].insert(
            -1, {"op": "get_attr", "name": "k", "target": f"k = {payload} #", "tensor": "model.0.weight"}
        ),
    )
    yield (
        "constant_named_as_a_method",
        "infer",
        lambda d: d["nodes"].insert(
            -1, {"op": "get_attr", "name": "k", "target": "forward", "tensor": "model.0.weight"}
        ),
    )
    yield "code_in_dtype", "infer", _in_slot("dtype", {"dtype": f"float32 if {payload} else float32"})
    yield "module_for_a_dtype", "infer", _in_slot("dtype", {"dtype": "_dynamo"})
    yield "code_in_device", "infer", _in_slot("device", f"cpu'); {payload} #")
    yield "unknown_device", "infer", _in_slot("device", "abacus:3")
    yield (
        "code_in_index",
        "train",
        lambda d: d["nodes"].insert(
            -1,
            {
                "op": "call",
                "name": "i",
                "target": "operator.getitem",
                "args": [{"node": d["nodes"][0]["name"]}, payload],
            },
        ),
    )
    yield (
        "text_for_a_number",
        "infer",
        lambda d: d["nodes"].insert(
            -1, {"op": "call", "name": "i", "target": "operator.mul", "args": [payload, 2**40]}
        ),
    )


def _set_assertion(document, text):
    _call(document, "aten::_assert_async")["args"][1] = text


def _target_edits():
    for name, target in (
        ("target_os", "os::system.default"),
        ("target_builtin", "builtins.eval"),
        ("target_python", "operator.attrgetter"),
        ("target_methodcaller", "operator.methodcaller"),
        ("target_file", "aten::from_file.default"),
        ("target_file_out", "aten::from_file.out"),
        ("target_save", "aten::save.default"),
        ("target_open", "aten::open.default"),
        ("target_print", "aten::_print.default"),
        ("target_torchscript_list", "aten::append.t"),
        ("target_prim_print", "prim::Print.default"),
        ("target_prim_rpc", "prim::rpc_async.default"),
        ("target_dunder", "aten::__class__.__name__"),
        ("target_attribute", "aten::add.__globals__"),
        ("target_dotted", "aten::add.Tensor.__globals__"),
        ("target_module", "torch.hub.load"),
        ("target_test", "aten::_test_serialization_subcmul.default"),
        ("target_classes", "classes::rnn.CellParamsBase"),
        ("target_loader", "torch.ops.load_library"),
        ("target_unchecked_sparse", "aten::_sparse_coo_tensor_unsafe.default"),
        ("target_nested_view", "aten::_nested_view_from_buffer.default"),
        ("target_c10d", "c10d::send.default"),
        ("target_profiler", "profiler::_record_function_enter.default"),
        ("target_oneflow_unknown", "oneflow::nothing.default"),
        ("target_number", 7),
        ("target_null", None),
        ("target_list", ["aten::add.Tensor"]),
        ("target_empty", ""),
        ("target_unicode", "aten::ａdd.Tensor"),
        ("target_newline", "aten::add.Tensor\n"),
        ("target_long", "aten::" + "a" * 10**6 + ".x"),
    ):
        yield name, "infer", _in_call("target", target)


def _structure_edits(marker):
    fqn = {"__enum__": True, "fqn": "evil_module:Color", "name": "RED"}
    for key in ("in_spec", "out_spec"):
        for name, text in (
            (
                "defaultdict_imports",
                _spec(
                    "collections.defaultdict",
                    {
                        "default_factory_module": "evil_module",
                        "default_factory_name": "run",
                        "dict_context": [],
                    },
                ),
            ),
            (
                "defaultdict_of_exit",
                _spec(
                    "collections.defaultdict",
                    {
                        "default_factory_module": "builtins",
                        "default_factory_name": "exit",
                        "dict_context": [],
                    },
                ),
            ),
            ("enum_imports", _spec("builtins.dict", json.dumps([fqn]), 1)),
            ("enum_of_an_attribute", _spec("builtins.dict", json.dumps([{**fqn, "fqn": "os:environ"}]), 1)),
            (
                "enum_of_lazy_torch",
                _spec("builtins.dict", json.dumps([{**fqn, "fqn": "torch:_dynamo.config"}]), 1),
            ),
            ("class_unknown", _spec("evil_module.Tree", "null")),
            ("class_of_torch", _spec("torch.fx.immutable_collections.immutable_dict", "[]")),
            ("namedtuple", _spec("collections.namedtuple", "evil_module.Point", 2)),
            ("held", _spec("oneflow._Held", '["os.system", [], {}]')),
            ("keys_that_do_not_fit", _spec("builtins.dict", '["a", "b"]', 1)),
            ("keys_alike", _spec("builtins.dict", '["a", "a"]', 2)),
            ("nested_deeply", json.dumps([1, _nested_spec(400)])),
            ("no_json", "{"),
            ("brackets", "[" * 100_000),
            ("other_version", json.dumps([2, {}])),
            ("number", 3),
            ("deque_of_negative_length", _spec("collections.deque", "-3", 1)),
            ("context_of_a_list", _spec("builtins.list", '{"a": 1}', 1)),
        ):
            yield f"{key}_{name}", "infer", _set(key, to=text)
    yield "in_spec_without_keywords", "infer", _set("in_spec", to=_spec("builtins.tuple", "null", 2))
    yield "in_spec_of_another_number", "infer", _set("in_spec", to=_spec("builtins.tuple", "null", 0))


def _nested_spec(depth):
    spec = {"type": None, "context": None, "children_spec": []}
    for _ in range(depth):
        spec = {"type": "builtins.list", "context": "null", "children_spec": [spec]}
    return spec


def _value_edits():
    yield "integer_of_4000_digits", "infer", _in_call("args", [10**4000])
    yield "integer_of_65_bits", "infer", _in_call("args", [2**65])
    yield "nested_arguments", "infer", _in_call("args", [_nested(300)])
    yield "unknown_tag", "infer", _in_call("args", [{"eval": "1"}])
    yield "two_tags", "infer", _in_call("args", [{"node": "x", "dtype": "float32"}])
    yield "float_of_code", "infer", _in_call("args", [{"float": "__import__('os')"}])
    yield "complex_of_texts", "infer", _in_call("args", [{"complex": ["1", "2"]}])
    yield "arguments_that_are_none", "infer", _in_call("args", {"tuple": []})
    yield "too_many_arguments", "infer", lambda d: _call(d)["args"].extend([1] * 50)
    yield "no_arguments", "infer", _in_call("args", [])
    yield "text_for_a_tensor", "infer", _in_call("args", ["a", "b", "c"])
    yield "negative_shape", "infer", _in_slot("shape", [-1, 4])
    yield "shape_of_texts", "infer", _in_slot("shape", ["u0", 4])
    yield "shape_of_booleans", "infer", _in_slot("shape", [True, 4])
    yield "huge_shape", "infer", _in_slot("shape", [2**40, 2**40])
    yield "other_dtype", "infer", _in_slot("dtype", {"dtype": "int64"})
    yield "other_stride", "infer", _in_slot("stride", [0, 0])
    yield "role_unknown", "infer", _in_slot("role", "system")
    yield "role_of_a_list", "infer", _in_slot("role", [])
    yield "argument_without_shape", "infer", _in_slot("shape", None, "arg")
    yield (
        "number_for_a_tensor",
        "train",
        lambda d: next(s for s in d["slots"] if s["role"] == "lr").update(name="model.weight"),
    )
    yield "text_for_a_rate", "train", _in_slot("value", "0.1", "lr")
    yield "list_for_a_rate", "train", _in_slot("value", [0.1] * 10, "lr")
    yield "constant_out_of_range", "infer", _set("out_constants", to=[[10**9, 2]])
    yield "constant_negative", "infer", _set("out_constants", to=[[-1, 2]])
    yield "constant_twice", "infer", _set("out_constants", to=[[1, 2], [1, 3]])
    yield "too_many_constants", "infer", _set("out_constants", to=[[i, 2] for i in range(100)])
    yield "argument_text_of_a_number", "infer", _set("in_constants", to=[[1, "scale", 2.0]])
    yield "outputs_of_numbers", "infer", _set("outputs", to=[1])
    yield "format_true", "infer", _set("format", to=True)
    yield "format_of_the_future", "infer", _set("format", to=99)
    yield "format_list", "infer", _set("format", to=[3])
    yield "unknown_key", "infer", _set("hook", to="os.system")
    yield "backend_unknown", "infer", _set("backend", to="os")
    yield "backend_list", "infer", _set("backend", to=["aten"])
    yield "others_of_texts", "infer", _set("others", to=["os"])
    yield "wrong_checksum", "infer", _set("crc32", to="00000000")
    for key in ("name", "slots", "nodes", "outputs", "in_spec", "out_constants", "training"):
        yield f"no_{key}", "infer", lambda d, key=key: d.pop(key)
        yield f"null_{key}", "infer", _set(key, to=None)
    yield "tensors_elsewhere", "infer", _set("tensors", to="../../../etc/passwd")
    yield "tensors_absolute", "infer", _set("tensors", to="/dev/zero")


def _node_edits():
    yield (
        "node_of_the_future",
        "infer",
        lambda d: _call(d)["args"].__setitem__(0, {"node": d["nodes"][-2]["name"]}),
    )
    yield "node_unknown", "infer", _in_call("args", [{"node": "nothing"}])
    yield "node_twice", "infer", lambda d: d["nodes"].insert(1, d["nodes"][0])
    yield "node_method", "infer", lambda d: _call(d).update(op="call_method", target="__reduce__")
    yield "node_module", "infer", lambda d: _call(d).update(op="call_module", target="os")
    yield "node_null", "infer", lambda d: d["nodes"].insert(0, None)
    yield "node_op_list", "infer", lambda d: d["nodes"].insert(0, {"op": ["call"]})
    yield "output_first", "infer", lambda d: d["nodes"].insert(0, d["nodes"][-1])
    yield "output_missing", "infer", lambda d: d["nodes"].pop()
    yield "output_of_texts", "infer", lambda d: d["nodes"][-1].update(args=["a"])
    yield (
        "placeholder_too_many",
        "infer",
        lambda d: d["nodes"].insert(0, {"op": "placeholder", "name": "more"}),
    )
    yield "placeholder_missing", "infer", lambda d: d["slots"].append(d["slots"][0])
    yield (
        "constant_unknown",
        "infer",
        lambda d: d["nodes"].insert(-1, {"op": "get_attr", "name": "k", "target": "k", "tensor": "nothing"}),
    )
    yield "guard_out_of_range", "infer", _set("guard", to={"inputs": [10**6], "nodes": []})
    yield (
        "guard_negative",
        "infer",
        _set(
            "guard",
            to={"inputs": [-1], "nodes": [{"op": "placeholder", "name": "p"}, {"op": "output", "args": []}]},
        ),
    )
    yield "guard_empty", "infer", _set("guard", to={"inputs": [], "nodes": []})
    yield (
        "guard_with_code",
        "infer",
        _set(
            "guard",
            to={
                "inputs": [],
                "nodes": [
                    {"op": "call", "name": "a", "target": "builtins.exec", "args": ["1"]},
                    {"op": "output", "args": []},
                ],
            },
        ),
    )
    yield "layer_unknown", "infer", _set("recurrent", to=[["os", False, 1, 0, 0, False]])
    yield "layer_short", "infer", _set("recurrent", to=[["gru"]])
    yield "layer_index", "infer", _in_call("recurrent", [[7, "given", 0]])
    yield "meta_of_texts", "infer", _in_call("tensor", ["a", "b", "c", "d"])
    yield "meta_short", "infer", _in_call("tensor", [[1]])
    yield "call_full_of_a_terabyte", "infer", lambda d: _append(d, "aten::full.default", [[10**12], 1.0])
    yield (
        "call_pow_of_large_integers",
        "infer",
        lambda d: _append(d, "aten::pow.Scalar", [2.0, {"node": d["nodes"][0]["name"]}]),
    )
    yield (
        "call_of_shapes_that_do_not_fit",
        "infer",
        lambda d: _append(d, "aten::mm.default", [{"node": d["nodes"][0]["name"]}] * 2),
    )


def _append(document, target, args):
    document["nodes"].insert(-1, {"op": "call", "name": "appended", "target": target, "args": args})


def _schedule_edits():
    for name, key, value in (
        ("schedule_unknown", "kind", "LambdaLR"),
        ("schedule_dunder", "kind", "__init__"),
        ("schedule_list", "kind", []),
        ("schedule_step_of_text", "step", "x"),
        ("schedule_huge_step", "step", 10**30),
        ("schedule_power_of_integers", "numbers", {"gamma": 2**62, "step_size": 0.000001}),
        ("schedule_by_zero", "numbers", {"gamma": 0.5, "step_size": 0}),
        ("schedule_attribute", "numbers", {"gamma": 0.5, "step_size": 1, "rates_at": 1}),
        ("schedule_rates_of_lists", "rates", [[]]),
        ("schedule_rates_of_weights", "rates", ["model.weight"]),
        ("schedule_no_groups", "base", []),
        ("schedule_members", "members", [{"kind": "StepLR", "numbers": {}, "members": []}]),
        ("schedule_infinite", "base", [float("inf")]),
    ):
        yield name, "train", _in_schedule(key, value)
    yield (
        "schedule_that_loops",
        "train",
        lambda d: d["schedules"][0].update(
            kind="CosineAnnealingWarmRestarts",
            step=2**50,
            numbers={"T_0": 1, "T_mult": 1.0000001, "eta_min": 0, "decay_rate": 1, "restart_limit": 0},
        ),
    )
    yield "schedule_nested", "train", _nest_schedule


def _nest_schedule(document):
    leaf = {k: document["schedules"][0][k] for k in ("kind", "numbers", "members")}
    for _ in range(150):
        leaf = {"kind": "ChainedScheduler", "numbers": {}, "members": [leaf]}
    document["schedules"][0].update(leaf)


# --------------------------------------------------------------------------- texts that are no document
def _texts(text):
    yield "text_empty", b""
    yield "text_of_brackets", b"[" * 200_000
    yield "text_of_objects", b'{"a":' * 100_000
    yield "text_of_zeros", bytes(1000)
    yield "text_of_no_utf8", b'{"format": 3, "name": "\xff\xfe"}'
    yield "text_half", text[: len(text) // 2]
    yield "text_behind", text + b"{}"
    yield "text_key_twice", text.replace(b'"format": 3', b'"format": 3, "format": 3', 1)
    yield "text_surrogate", text.replace(b'"name": "', b'"name": "\\ud800', 1)
    yield "text_nan", text.replace(b'"out_constants": [[', b'"out_constants": [[NaN, 1], [', 1)
    yield "text_infinity", text.replace(b'"format": 3', b'"format": Infinity', 1)
    yield "text_digits", b'{"format": ' + b"9" * 100_000 + b"}"
    yield "text_list", b"[3]"
    yield "text_number", b"3"
    yield "text_of_empty_lists", b"[" + b"[]," * 10**6 + b"[]]"


# --------------------------------------------------------------------------- tensors.pt
class _Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def _zipped(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def _members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(m.filename, archive.read(m)) for m in archive.infolist()]


def _with_pickle(data, pickled):
    return _zipped(
        [(name, pickled if name.endswith("/data.pkl") else content) for name, content in _members(data)]
    )


def _saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def _tensor_files(data, marker):
    run = pickle.dumps(_Payload(marker), protocol=2)
    yield "tensors_pickle_that_runs", run
    yield "tensors_zip_with_a_pickle_that_runs", _with_pickle(data, run)
    yield (
        "tensors_bytearray_of_gigabytes",
        _with_pickle(data, b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x7f\x85R."),
    )
    yield "tensors_bytearray8", _with_pickle(data, b"\x80\x05\x96" + struct.pack("<Q", 1 << 32) + b".")
    yield "tensors_text_of_gigabytes", _with_pickle(data, b"\x80\x02X\xff\xff\xff\x7fa.")
    yield "tensors_memo_of_gigabytes", _with_pickle(data, b"\x80\x02}r\xff\xff\xff\x7f.")
    yield "tensors_numpy", _with_pickle(data, b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n.")
    yield "tensors_import", _with_pickle(data, b"\x80\x02cevil_module\nrun\n)R.")
    yield "tensors_stack_global", _with_pickle(data, b"\x80\x04\x8c\x02os\x8c\x06system\x93.")
    yield "tensors_build", _with_pickle(data, b"\x80\x02ccollections\nOrderedDict\n)R}b.")
    yield "tensors_no_stop", _with_pickle(data, b"\x80\x02}")
    yield "tensors_list", _saved([torch.ones(1)])
    yield "tensors_of_numbers", _saved({"model.0.weight": 3})
    yield "tensors_keyed_by_numbers", _saved({3: torch.ones(1)})
    yield "tensors_missing", _saved({})
    yield "tensors_of_other_shapes", _saved({"model.0.weight": torch.ones(1)})
    yield "tensors_old_format", _saved({"a": torch.ones(1)}, _use_new_zipfile_serialization=False)
    yield "tensors_compressed", _zipped(_members(data), zipfile.ZIP_DEFLATED)
    yield (
        "tensors_bomb",
        _zipped([*_members(data), ("archive/data/99", bytes(1 << 26))], zipfile.ZIP_DEFLATED),
    )
    yield "tensors_two_pickles", _zipped([*_members(data), ("other/data.pkl", b"\x80\x02}.")])
    yield "tensors_behind_something", b"x" * 100 + data
    yield "tensors_before_something", data + b"x" * 100
    yield "tensors_empty", b""
    yield "tensors_empty_zip", _zipped([])
    yield "tensors_text", b"no zip file"
    yield "tensors_larger_storage", _larger_storage(data)
    yield "tensors_flipped", _flipped(data)


def _larger_storage(data):
    """A storage that says it has more elements than its member."""
    pickled = dict(_members(data))["archive/data.pkl"]
    at = pickled.index(b"cpu") + 3
    at = pickled.index(b"K", at)
    return _with_pickle(data, pickled[:at] + b"J" + struct.pack("<i", 1 << 28) + pickled[at + 2 :])


def _flipped(data):
    members = _members(data)
    _, content = max((m for m in members if "/data/" in m[0]), key=lambda m: len(m[1]))
    at = data.index(content)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# --------------------------------------------------------------------------- folders
def _folders(files):
    yield "folder_empty", {}
    yield "folder_without_tensors", {"program.json": files["program.json"]}
    yield "folder_without_program", {"tensors.pt": files["tensors.pt"]}
    yield "link_to_a_device", {**files, "program.json": Link("/dev/zero")}
    yield "link_to_a_device_for_tensors", {**files, "tensors.pt": Link("/dev/zero")}
    yield "link_out_of_the_folder", {**files, "program.json": Link("/etc/passwd")}
    yield "link_up", {**files, "tensors.pt": Link("../../tensors.pt")}
    yield "link_to_itself", {**files, "program.json": Link("program.json")}

"""The tree of nested arguments; names, order and prefixes as recorded from OneFlow 0.9.0."""

import dataclasses
from collections import OrderedDict

import pytest

import oneflow as flow
from oneflow.nn.graph.args_tree import ArgsTree as Newer
from oneflow.nn.graph.util import ArgsTree, NamedArg

X = flow.ones(1)
ARGUMENTS = ([X, {"a": 1}], {"k": (2, None)})


def test_plain_tree():
    tree = ArgsTree(ARGUMENTS, False)
    assert [type(n).__name__ for n in tree.iter_nodes()] == [
        "tuple",
        "list",
        "Tensor",
        "dict",
        "int",
        "dict",
        "tuple",
        "int",
        "NoneType",
    ]
    assert tree.map_leaf(lambda v: type(v).__name__) == (["Tensor", {"a": "int"}], {"k": ("int", "NoneType")})
    with pytest.raises(AssertionError, match="gen_name"):
        list(tree.iter_named_nodes())


def test_named_tree():
    tree = ArgsTree(ARGUMENTS, True, "root", None)
    nodes = [(n.prefix(), n.name(), n.global_index(), n.is_leaf()) for n in tree.iter_nodes()]
    assert nodes == [
        ("root", "0", 0, False),
        ("root.0", "1", 1, False),
        ("root.0.0", "2", 2, True),
        ("root.0.1", "3", 3, False),
        ("root.0.1.0", "a", 4, True),
        ("root.1", "5", 5, False),
        ("root.1.0", "k", 6, False),
        ("root.1.0.0", "7", 7, True),
        ("root.1.0.1", "8", 8, True),
    ]
    assert dict(tree.iter_named_nodes())["root.0.1.0_a"].value() == 1
    assert tree.map_leaf(lambda n: n.name()) == (["2", {"a": "a"}], {"k": ("7", "8")})
    assert Newer is ArgsTree


@dataclasses.dataclass
class Output(OrderedDict):
    """As diffusers' outputs are: a dict whose constructor takes the fields."""

    sample: object
    more: tuple = ()

    def __post_init__(self):
        self.update(sample=self.sample, more=self.more)


def test_dataclasses_are_looked_through(monkeypatch):
    tree = ArgsTree((Output(X, (1, X)), None), False)
    assert [type(n).__name__ for n in tree.iter_nodes()] == [
        "tuple",
        "Output",
        "Tensor",
        "tuple",
        "int",
        "Tensor",
        "NoneType",
    ]
    out = tree.map_leaf(lambda v: type(v).__name__)[0]
    assert (
        isinstance(out, Output) and out.sample == out["sample"] == "Tensor" and out.more == ("int", "Tensor")
    )
    assert [n.name() for n in ArgsTree(Output(X), True).iter_nodes()] == ["0", "sample", "more"]
    monkeypatch.setattr("oneflow.nn.graph.args_tree._is_dataclass", lambda value: False)  # as onediff does
    plain = dataclasses.make_dataclass("Plain", ["x"])(X)
    assert ArgsTree([plain], False).map_leaf(lambda v: v) == [plain]


def test_a_node_prints_its_kind():
    node = NamedArg("p", "n", 3)
    assert repr(node) == "(name: n, idx: 3, type: NONE, value: None)"
    with pytest.raises(AssertionError):
        node.value()
    node.set_value(4)
    assert repr(node) == "(name: n, idx: 3, type: OPAQUE, value: 4)"
    node.set_value(X)
    assert (
        repr(node) == "(name: n, idx: 3, type: TENSOR, value: tensor(..., size=(1,), dtype=oneflow.float32))"
    )

"""Weak references that build() follows: a program keeps no object of them alive."""

import gc
import warnings
import weakref

import pytest
import torch

import oneflow as flow

X = torch.ones(2)


class Holder:
    def __init__(self, value=2.0):
        self.value = value

    def read(self):
        return self.value


class Slotted:
    __slots__ = ("__weakref__", "value")

    def __init__(self, value=2.0):
        self.value = value

    def read(self):
        return self.value


def by_reference(owner):
    reference = weakref.ref(owner)
    return lambda x: x * (reference().value if reference() is not None else 5.0)


def by_method(owner):
    method = weakref.WeakMethod(owner.read)
    return lambda x: x * (method()() if method() is not None else 5.0)


def by_values(owner):
    table = weakref.WeakValueDictionary(key=owner)
    return lambda x: x * (table["key"].value if "key" in table else 5.0)


def by_keys(owner):
    table = weakref.WeakKeyDictionary({owner: 3.0})
    return lambda x: x * (sum(key.value + factor for key, factor in table.items()) or 5.0)


def by_set(owner):
    members = weakref.WeakSet([owner])
    return lambda x: x * (sum(member.value for member in members) or 5.0)


def graph_of(function):
    class Reads(flow.nn.Graph):
        def build(self, x):
            return function(x)

    graph = Reads()
    graph.config.set_backend("aten")
    return graph


@pytest.mark.parametrize("cls", [Holder, Slotted])
@pytest.mark.parametrize(
    "make", [by_reference, by_method, by_values, by_keys, by_set], ids=lambda make: make.__name__
)
def test_an_object_that_dies_is_followed(make, cls):
    owner = cls()
    function = make(owner)
    graph = graph_of(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert torch.equal(graph(X), function(X))
        assert len(graph._engine.programs) == 1
        owner.value = 4.0
        assert torch.equal(graph(X), function(X))
        died = weakref.ref(owner)
        del owner
        assert died() is None, gc.get_referrers(died())
        assert torch.equal(graph(X), function(X)) and function(X).tolist() == [5.0, 5.0]


def test_the_class_of_the_object_is_still_guarded():
    class Other(Holder):
        value = 7.0

    owner = Holder()
    function = by_reference(owner)
    graph = graph_of(function)
    assert torch.equal(graph(X), function(X))
    owner.__class__ = Other
    del owner.value
    assert torch.equal(graph(X), function(X)) and function(X).tolist() == [7.0, 7.0]
    owner.__dict__ = {"value": 8.0}
    assert torch.equal(graph(X), function(X)) and function(X).tolist() == [8.0, 8.0]


def test_a_tensor_of_a_weak_reference_is_named():
    tensor = torch.full((2,), 3.0)
    reference = weakref.ref(tensor)
    graph = graph_of(lambda x: x * reference())
    with pytest.warns(UserWarning, match="a weak reference to a tensor"):
        assert graph(X).tolist() == [3.0, 3.0]

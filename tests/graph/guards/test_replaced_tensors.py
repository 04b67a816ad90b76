"""An attribute gets another container with other tensors: the next call reads those."""

import collections
import dataclasses
import functools
import types

import pytest
import torch

import oneflow as flow

Pair = collections.namedtuple("Pair", "h c")


class TupleOfAClass(tuple):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    h: torch.Tensor
    c: torch.Tensor


class Slots:
    __slots__ = ("c", "h")

    def __init__(self, h, c):
        self.h, self.c = h, c


class Affine:
    def __init__(self, h, c):
        self.h, self.c = h, c

    def apply(self, x):
        return x * self.h + self.c


CONTAINERS = {  # name -> (what holds two tensors, how a step uses it)
    "tuple": (lambda h, c: (h, c), lambda v, x: x * v[0] + v[1]),
    "tuple_in_a_tuple": (lambda h, c: (h, (c, h)), lambda v, x: x * v[1][1] + v[1][0]),
    "tuple_of_a_class": (lambda h, c: TupleOfAClass((h, c)), lambda v, x: x * v[0] + v[1]),
    "fields_of_a_named_tuple": (Pair, lambda v, x: x * v.h + v.c),
    "elements_of_a_named_tuple": (Pair, lambda v, x: x * v[0] + v[1]),
    "unpacked_named_tuple": (Pair, lambda v, x: Affine(*v).apply(x)),
    "named_tuple_as_a_dict": (Pair, lambda v, x: x * v._asdict()["h"] + v.c),
    "named_tuple_in_a_list": (lambda h, c: [Pair(h, (c,))], lambda v, x: x * v[0].h + v[0].c[0]),
    "named_tuple_in_a_dict": (lambda h, c: {"k": Pair(h, c)}, lambda v, x: x * v["k"].h + v["k"].c),
    "result_of_max": (lambda h, c: torch.return_types.max((h, c)), lambda v, x: x * v.values + v.indices),
    "packed_sequence": (lambda h, c: torch.nn.utils.rnn.pack_sequence([h]), lambda v, x: x * v.data),
    "list": (lambda h, c: [h, c], lambda v, x: x * v[0] + v[1]),
    "deque": (lambda h, c: collections.deque([h, c]), lambda v, x: x * v[0] + v[1]),
    "dict": (lambda h, c: {"h": h, "c": c}, lambda v, x: x * v["h"] + v["c"]),
    "ordered_dict": (lambda h, c: collections.OrderedDict(h=h, c=c), lambda v, x: x * v["h"] + v["c"]),
    "read_only_dict": (
        lambda h, c: types.MappingProxyType({"h": h, "c": c}),
        lambda v, x: x * v["h"] + v["c"],
    ),
    "user_dict": (lambda h, c: collections.UserDict(h=h, c=c), lambda v, x: x * v["h"] + v["c"]),
    "set": (lambda h, c: {h}, lambda v, x: x * next(iter(v))),
    "frozen_set": (lambda h, c: frozenset([h]), lambda v, x: x * next(iter(v))),
    "namespace": (lambda h, c: types.SimpleNamespace(h=h, c=c), lambda v, x: x * v.h + v.c),
    "frozen_dataclass": (Frozen, lambda v, x: x * v.h + v.c),
    "slots": (Slots, lambda v, x: x * v.h + v.c),
    "method": (lambda h, c: Affine(h, c).apply, lambda v, x: v(x)),
    "closure": (lambda h, c: lambda x: x * h + c, lambda v, x: v(x)),
    "partial": (lambda h, c: functools.partial(torch.add, h, alpha=2), lambda v, x: v(x)),
}
CHANGES = {
    "both": lambda h, c: (h + 3, c + 1),
    "one": lambda h, c: (h, c + 1),
    "swapped": lambda h, c: (c, h),
    "one_twice": lambda h, c: (c, c),
}


def results(name, change, is_compiled):
    make, use = CONTAINERS[name]
    h, c = torch.arange(3.0) + 1, torch.arange(3.0) * 2
    box = types.SimpleNamespace(held=make(h, c))
    step = lambda x: use(box.held, x)
    step = flow.compile_step(step, backend="aten") if is_compiled else step
    found = []
    for call in range(5):
        found.append(step(torch.ones(3)).tolist())
        if call:  # the first two calls meet the same tensors
            h, c = CHANGES[change](h, c)
            box.held = make(h, c)
    return found


@pytest.mark.filterwarnings("ignore:.*runs in eager mode:UserWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_step_computes_with_the_tensors_of_the_new_container(name, change):
    assert results(name, change, True) == results(name, change, False)

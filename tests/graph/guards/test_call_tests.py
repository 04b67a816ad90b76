"""The compiled tests of a call's arguments agree with the signature and with the search for shared memory."""

import itertools

import pytest
import torch
from graph_cases import graph_of

from oneflow._graph.guards.call_tests import alike_test, separate_test, unknown
from oneflow._graph.guards.native import probed_features
from oneflow._graph.program.writes import storage_of
from oneflow._graph.signature import signature

pytestmark = pytest.mark.skipif(probed_features() is None, reason="the guards were not compiled")


class Subclass(torch.Tensor):
    pass


def plain_arguments():
    x = torch.zeros(3, 2)
    return [
        (x,),
        (torch.ones(8)[2:].view(3, 2),),
        (torch.zeros(2, 3),),
        (torch.zeros(2, 3).t(),),
        (torch.zeros(6),),
        (torch.tensor(1.0),),
        (x.double(),),
        (x.to("meta"),),
        (x.clone().requires_grad_(),),
        (x.clone().requires_grad_() * 2,),
        (x.clone().requires_grad_().detach(),),
        (x, x),
        (x, 1),
        (x, 2),
        (x, True),
        (x, None),
        (x, "a"),
        (),
    ]


def other_arguments():
    x = torch.zeros(3, 2)
    complex_values = torch.zeros(3, 2, dtype=torch.complex64)
    return [
        (x.to_sparse(),),
        (torch.nn.Parameter(x),),
        (x.as_subclass(Subclass),),
        (torch.zeros(1, 1, 1, 1, 3, 2),),
        (complex_values,),
        (complex_values.conj(),),
        (x, 1.0),
        ([x],),
    ]


def test_arguments_are_alike_exactly_if_their_signatures_are_equal():
    for args, others in itertools.product(plain_arguments(), repeat=2):
        same = signature(args, {})[0] == signature(others, {})[0]
        assert alike_test(args)(others) is same, (args, others)


def test_other_arguments_are_left_to_the_signature():
    for args, others in itertools.product(plain_arguments(), other_arguments()):
        assert not alike_test(args)(others)
        assert alike_test(others) is unknown


def test_a_tensor_that_was_resized_in_place_is_not_alike():
    x = torch.zeros(3, 2)
    is_alike = alike_test((x,))
    x.resize_(2, 3)
    assert not is_alike((x,))


def test_memory_of_arguments_is_separate():
    written, x, y = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    only_state = separate_test((1, 2), (storage_of(written),), False)
    arguments_too = separate_test((1, 2), (storage_of(written),), True)
    assert only_state((written, x, y)) and arguments_too((written, x, y))
    assert not only_state((written, x, written[1:])) and not arguments_too((written, written, y))
    assert only_state((written, x, x[1:])) and not arguments_too((written, x, x[1:]))
    assert not only_state((written, x, torch.nn.Parameter(y))), "another class is looked at closer"


def test_a_program_captured_under_autocast_does_not_serve_calls_without_it():
    weight = torch.randn(4, 4)
    step = graph_of(lambda x: x @ weight)
    x = torch.randn(2, 4)
    with torch.autocast("cpu"):
        assert step(x).dtype == step(x).dtype == torch.bfloat16
    assert step(x).dtype == step(x).dtype == torch.float32
    with torch.autocast("cpu"):
        assert step(x).dtype == torch.bfloat16
    assert len(step._engine.programs) == 2

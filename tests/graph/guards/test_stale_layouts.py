"""A graph follows in-place changes of real tensors whose shape, strides, gradient or address build()
reads.
"""

import pytest
import torch
from hostile_cases import verdict
from torch import nn

import oneflow as flow


def graph_of(build):
    class Reads(flow.nn.Graph):
        def build(self, x):
            return build(x)

    return Reads()


def resized(tensor):
    return lambda: tensor.resize_(5)


@pytest.mark.parametrize(
    "read",
    [lambda t: t.shape[0], lambda t: t.size(0), lambda t: t.numel(), len, lambda t: [*map(len, [t])][0]],
    ids=["shape", "size()", "numel()", "len()", "map(len)"],
)
def test_size_of_a_tensor_in_a_closure_is_followed(read):
    tensor = torch.ones(3)
    assert verdict(lambda x: x * read(tensor), resized(tensor)) == "followed"


def test_size_of_a_tensor_in_a_list_is_followed():
    tensors = [torch.ones(3)]
    assert verdict(lambda x: x * tensors[0].numel(), resized(tensors[0])) == "followed"


def test_size_of_a_tensor_in_an_attribute_of_a_module_is_followed():
    module = nn.Linear(4, 4)
    module.scales = torch.ones(3)
    assert verdict(lambda x: module(x) * len(module.scales), resized(module.scales), module) == "followed"


def test_size_of_a_tensor_in_a_nested_list_that_a_function_of_torch_reads():
    shapes = {"like": [torch.ones(1)]}

    def build(x):
        return x * len(torch.functional.broadcast_shapes(*[t.shape for t in shapes["like"]]))

    assert verdict(build, lambda: shapes["like"][0].resize_(1, 1, 1)) == "followed"


def test_dtype_that_set_data_changes():
    tensor = torch.ones(3)

    def change():
        tensor.data = tensor.data.double()

    assert verdict(lambda x: x * (2.0 if tensor.dtype is torch.float32 else 3.0), change) == "followed"


@pytest.mark.parametrize(
    "read", [lambda t: t.stride(0), lambda t: 1 + t.is_contiguous()], ids=["stride()", "is_contiguous()"]
)
def test_strides_that_set_data_changes(read):
    tensor = torch.ones(3, 4)

    def change():
        tensor.data = torch.ones(4, 3).t()

    assert verdict(lambda x: x * read(tensor), change) == "followed"


def test_gradient_of_a_tensor_is_followed():
    tensor = torch.ones(3)

    def change():
        tensor.grad = torch.ones(3)

    assert verdict(lambda x: x * (2.0 if tensor.grad is None else 3.0), change) == "followed"


def test_version_of_a_tensor_is_followed():
    tensor = torch.ones(3)
    assert verdict(lambda x: x * tensor._version, lambda: tensor.add_(1)) == "followed"


def test_address_of_a_tensor_is_followed():
    tensor = torch.ones(3)
    seen = {tensor.data_ptr()}
    kept = []

    def change():
        kept.append(tensor.data)
        tensor.data = torch.ones(3)

    assert verdict(lambda x: x * (2.0 if tensor.data_ptr() in seen else 3.0), change) == "followed"


def test_attribute_of_a_tensor_that_is_replaced():
    """The new tensor is laid out like the old one, and the user has put another number on it."""
    holder = nn.Module()
    holder.table = torch.ones(4)
    holder.table.scale = 2.0

    def change():
        holder.table = torch.ones(4)
        holder.table.scale = 3.0

    assert verdict(lambda x: x * holder.table.scale + holder.table, change) == "followed"


def test_size_of_a_tensor_that_replaced_another_one_is_followed():
    """The guard of the size goes over to the new tensor."""
    holder = nn.Module()
    holder.table = torch.ones(4)
    graph = graph_of(lambda x: x * holder.table.shape[0])
    assert graph(torch.ones(3)).tolist() == [4.0] * 3
    holder.table = torch.ones(4)
    assert graph(torch.ones(3)).tolist() == [4.0] * 3
    holder.table.resize_(5)
    assert graph(torch.ones(3)).tolist() == [5.0] * 3


def test_equal_layouts_make_no_program():
    tensor = torch.ones(3)
    graph = graph_of(lambda x: x * tensor.shape[0] + tensor)
    x = torch.ones(3)
    for _ in range(3):
        graph(x)
        tensor.add_(1)
        tensor.data = tensor.data.clone()
    assert len(graph._engine.programs) == 1

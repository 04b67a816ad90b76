"""Calls that eager mode refuses: build() raises the same class of error with the same message."""

import re

import pytest
import torch
import torch.nn.functional as F
from graph_cases import graph_of

import oneflow as flow

OTHER = torch.ones(4, 2)
REFUSED = {
    "product": lambda x: x @ OTHER,
    "linear": lambda x: F.linear(x, torch.ones(2, 5)),
    "sum": lambda x: x + torch.ones(2, 4),
    "where": lambda x: torch.where(x > 0, x, torch.ones(7)),
    "mask": lambda x: x.masked_fill(torch.ones(5) > 0, 1.0),
    "cat": lambda x: torch.cat([x, torch.ones(3, 4)], 1),
    "stack": lambda x: torch.stack([x, OTHER]),
    "layer norm": lambda x: F.layer_norm(x, (7,)),
    "ids of another dtype": lambda x: F.embedding(x, OTHER),
    "another class of error": lambda x: F.max_pool2d(x, 5),
    "grid": lambda x: F.grid_sample(x[None, None], x[None]),
    "gather": lambda x: x.gather(1, torch.zeros(2, 9, 9, dtype=torch.long)),
    "transposed tensor": lambda x: x.t() @ OTHER,
    "expanded tensor": lambda x: x[:1].expand(3, 3) @ OTHER,
    "softmax of integers": lambda x: x.long().softmax(1),
    "gelu of bools": lambda x: F.gelu(x > 0),
    "comparison of complex numbers": lambda x: x.to(torch.complex64) < 2,
    "convolution of two dtypes": lambda x: F.conv1d(x[None], torch.ones(2, 2, 2).double()),
    "class weights of another dtype": lambda x: F.nll_loss(x, x[:, 0].long(), torch.ones(3).double()),
    "sum of overlapping elements": lambda x: shifted(x.clone()),
    "write into an expanded tensor": lambda x: x[:1].clone().expand(2, 3).add_(1),
    "scatter from itself": lambda x: written_from_itself(x.clone()),
    "result in an operand": lambda x: result_in_an_operand(x.clone()),
}


def shifted(x):
    elements = x.view(-1)
    elements[1:] += elements[:-1]
    return x


def written_from_itself(x):
    return x.scatter_(0, torch.zeros(2, 3, dtype=torch.long), x)


def result_in_an_operand(x):
    elements = x.view(-1)
    return torch.add(elements[1:], 1, out=elements[:-1])


def error_of(call, *arguments):
    with pytest.raises(Exception) as raised:
        call(*arguments)
    return raised.value


@pytest.mark.parametrize("case", REFUSED)
def test_the_error_of_eager_mode_is_raised(case):
    x = torch.ones(2, 3)
    in_eager_mode, in_graph = error_of(REFUSED[case], x), error_of(graph_of(REFUSED[case]), x)
    assert type(in_graph) is type(in_eager_mode)
    assert str(in_eager_mode).split("\n")[0] in str(in_graph)


def test_the_sizes_of_the_present_call_are_named_if_they_vary():
    def build(x):
        return x * 2 if x.shape[0] > 3 else x @ OTHER

    graph = graph_of(build)
    for rows in (4, 5, 6):
        graph(torch.ones(rows, 3))
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(2x3 and 4x2\)"):
        graph(torch.ones(2, 3))


def test_a_refused_call_draws_no_random_numbers():
    def build(x):
        return torch.normal(x, torch.ones(5, 5))

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        graph_of(build)(torch.ones(2, 3))
    assert torch.equal(torch.get_rng_state(), state)


def test_operands_that_only_share_memory_are_recorded():
    def build(x):
        x = x.clone()
        x[:, :1] += x[:, 1:2]
        x.add_(x)
        x[0].copy_(x[1])
        return x, x.long() % 2, x.double() * x

    x = torch.ones(2, 3)
    graph = graph_of(build)
    for actual, expected in zip(graph(x), build(x), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("size", [(2, 2), None])
def test_a_sparse_tensor_of_compressed_rows_made_of_its_parts_is_right_or_a_clear_error(size):
    rows, columns = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1])

    def build(x):
        return torch.sparse_csr_tensor(rows, columns, x, **({"size": size} if size else {})).to_dense()

    no_program = "build\\(\\) makes a sparse tensor|reads the numbers of a tensor|shape depends on values"
    try:  # torch 2.15 makes a symbolic one if the size is known
        results = [graph_of(build)(torch.full((4,), value)) for value in (1.0, 2.0)]
    except RuntimeError as e:
        assert re.search(no_program, str(e)), e
    else:
        assert [r.tolist() for r in results] == [[[1.0, 1.0], [1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0]]]


def test_a_sparse_tensor_of_compressed_rows_made_of_a_dense_one_is_recorded():
    graph = graph_of(lambda x: x.to_sparse_csr() @ x)
    x = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    for value in (x, x + 1, flow.eye(2)):
        assert torch.equal(graph(value), value @ value)


def test_an_operator_of_another_library_is_not_called_for_its_error():
    calls = []

    @torch.library.custom_op("kernel_errors_test::refuses", mutates_args=())
    def refuses(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x.clone()

    @refuses.register_fake
    def _(x):
        raise ValueError("no fake result")

    with pytest.raises(Exception, match="no fake result"):
        graph_of(lambda x: refuses(x))(torch.ones(2))
    assert not calls


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "div_", "pow_"])
@pytest.mark.parametrize("operand", [2, 2.5, torch.tensor([2, 3]), torch.tensor([1.5, 2.5])], ids=str)
def test_a_write_of_floats_into_integers_is_eagers(name, operand):
    """torch refuses it, and OneFlow rounds for some operators."""

    def build(x):
        return getattr(x.clone(), name)(operand)

    x = torch.tensor([1, 2])
    try:
        expected = build(x)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as refused:
            graph_of(build)(x)
        assert str(refused.value) == str(error)
    else:
        assert torch.equal(graph_of(build)(x), expected)

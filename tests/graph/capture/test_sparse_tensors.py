"""Sparse tensors (COO) created, changed and counted in build(): values and gradients equal eager mode."""

import pytest
import torch

import oneflow as flow

PLACES = torch.tensor([[1, 0, 1, 2], [0, 1, 0, 2]])  # one place twice

USES = {
    "to_dense": lambda d, x, w: d.to_dense() @ x,
    "added to a dense tensor": lambda d, x, w: x @ (w + d).t(),
    "product": lambda d, x, w: torch.sparse.mm(d, x),
    "product of two": lambda d, x, w: (d @ d).to_dense() * w,
    "softmax": lambda d, x, w: torch.sparse.softmax(d, 1).to_dense() * w,
    "times a number": lambda d, x, w: (d * 2.0).to_dense() * w,
    "transpose": lambda d, x, w: d.t() @ x,
    "values": lambda d, x, w: d.coalesce().values(),
    "mean of values": lambda d, x, w: w * d.detach().coalesce().values().mean(),
    "mask": lambda d, x, w: w.sparse_mask(d.detach().coalesce()).to_dense(),
    "made of its parts": lambda d, x, w: (
        torch.sparse_coo_tensor(d.coalesce().indices(), d.coalesce().values() * 2, d.shape) @ (w + x)
    ),
}


class Weighted(torch.nn.Module):
    def __init__(self, use):
        super().__init__()
        self.use, self.values, self.weight = (
            use,
            torch.nn.Parameter(torch.randn(4)),
            torch.nn.Parameter(torch.randn(3, 3)),
        )

    def forward(self, x):
        return self.use(torch.sparse_coo_tensor(PLACES, self.values, (3, 3)), x, self.weight).square().mean()


class Train(flow.nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.config.set_backend("aten")
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = self.model(x)
        loss.backward()
        return loss


def losses(use, graph):
    torch.manual_seed(0)
    model, x = Weighted(use), torch.randn(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = Train(model, optimizer) if graph else None
    out = []
    for _ in range(3):
        if graph:
            out.append(step(x).detach())
            continue
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        out.append(loss.detach())
    return torch.stack([*out, *(p.detach().sum() for p in model.parameters())])


@pytest.mark.parametrize("use", USES)
def test_training_on_a_sparse_tensor_of_weights_is_eager(use):
    """The gradient of its values had no rows (an error); torch's kernels for two sparse factors and softmax
    gave zeros below autograd.
    """
    assert torch.equal(losses(USES[use], True), losses(USES[use], False))


def test_a_number_of_rows_that_depends_on_values_is_an_error():
    """It was zero in the program."""

    class Count(flow.nn.Graph):
        def build(self, d):
            return d.to_dense() * d._nnz()

    with pytest.raises(RuntimeError, match="rows of a sparse tensor"):
        Count()(torch.eye(3).to_sparse())


def test_arguments_with_other_numbers_of_rows():
    class Mean(flow.nn.Graph):
        def build(self, d):
            return d.values().mean() + d.indices().sum()

    graph = Mean()
    graph.config.set_backend("aten")
    for d in (torch.diag(torch.tensor([1.0, 2, 3])), torch.diag(torch.tensor([0.0, 5, 3])), torch.ones(3, 3)):
        d = d.to_sparse()
        assert torch.equal(graph(d), d.values().mean() + d.indices().sum())


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_of_bags_of_embeddings_are_eager(mode):
    def trained(graph):
        torch.manual_seed(0)
        bag = torch.nn.EmbeddingBag(10, 4, sparse=True, mode=mode)
        optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)

        class Squares(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bag = bag

            def forward(self, ids):
                return self.bag(ids).square().sum()

        model = Squares()
        step = Train(model, optimizer) if graph else None
        for ids in ([[1, 2, 3], [4, 5, 5]], [[9, 2, 3], [4, 4, 4]], [[0, 0, 1], [1, 2, 3]]):
            if graph:
                step(torch.tensor(ids))
            else:
                optimizer.zero_grad()
                model(torch.tensor(ids)).backward()
                optimizer.step()
        return bag.weight

    assert torch.equal(trained(True), trained(False))

"""one_embedding.Optimizer: an optimizer of the dense parameters that also updates the rows of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..optim import Adam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .embedding import Embedding


class Optimizer:
    """Wraps `optimizer`: step() updates its parameters and the rows of `embeddings` (a module or a list of
    them).

    The rows use the group of the optimizer that holds the embedding's parameters: lr, betas, weight_decay,
    ...
    SGD, Adam, AdamW, Adagrad, Ftrl, SmartDecayAdam. Everything else is the wrapped optimizer's.

    TypeError unless the first argument is an optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, embeddings: Embedding | Sequence[Embedding]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"one_embedding.Optimizer: expected an optimizer, found {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        self.embeddings = [embeddings] if isinstance(embeddings, torch.nn.Module) else list(embeddings)
        for embedding in self.embeddings:
            embedding.attach(optimizer)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of the dense parameters, then of the rows."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        norms = []
        for embedding in self.embeddings:
            grad = embedding.shadow.grad
            norms.append(None if grad is None else grad.item())
            if grad is not None:
                grad.zero_()
        self.optimizer.step()
        for embedding, norm in zip(self.embeddings, norms):
            embedding.update(norm)
        return loss

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.optimizer.zero_grad(set_to_none)
        for embedding in self.embeddings:
            embedding.drop_gradients()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)


class SmartDecayAdam(Adam):
    """Adam whose rows' moments decay for the steps in which a row was not seen, when it is seen again.

    On dense parameters it is Adam. Rows keep one number more: make the store with storage_dim=3 *
    embedding_dim + 1.
    """

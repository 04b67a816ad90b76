"""Two libraries under comparison: a torch-like reference and a candidate, and how values cross between them."""
from __future__ import annotations

import numpy as np


class Pair:
    """`reference` makes torch tensors; `candidate` is any namespace with torch's names.

    names: the attributes of a dual object that hand out its two sides, besides `.reference` and `.candidate`.
    to_candidate: candidate tensor from a torch tensor; default `candidate.tensor(array)`, a copy where both share one class.
    to_numpy: array of a candidate tensor; default `.detach().cpu().numpy()`.
    accepts_more: the candidate may run what the reference refuses; such cases do not count. Otherwise they fail.
    """

    def __init__(self, reference, candidate, names=("pytorch", "oneflow"), to_candidate=None, to_numpy=None, accepts_more=False):
        self.reference, self.candidate, self.names = reference, candidate, tuple(names)
        self.reference_tensor = reference.Tensor
        self.candidate_tensor = candidate.Tensor
        self.accepts_more = accepts_more
        self.same_tensors = candidate.Tensor is reference.Tensor
        self.drawn_from = None  # state of the random stream before the last call, if that drew from it
        self.graph_refusals = {"CaptureError"}  # names of exceptions by which the candidate says "this cannot be a graph"
        self.reference_module = reference.nn.Module
        self.candidate_module = getattr(getattr(candidate, "nn", None), "Module", ())
        if to_candidate is not None:
            self._convert = to_candidate
        if to_numpy is not None:
            self.to_numpy = to_numpy

    # ------------------------------------------------------------------ kinds of values
    def is_reference_tensor(self, x):
        return isinstance(x, self.reference_tensor)

    def is_candidate_tensor(self, x):
        return isinstance(x, self.candidate_tensor)

    # ------------------------------------------------------------------ crossing over
    def to_candidate(self, tensor, requires_grad=None, pin_memory=False):
        """The candidate's tensor with the values of the torch tensor; never shares memory with it."""
        needs = tensor.requires_grad if requires_grad is None else requires_grad
        made = self._convert(tensor.detach())
        if pin_memory and hasattr(made, "pin_memory") and tensor.is_pinned():
            made = made.pin_memory()
        return made.requires_grad_(True) if needs else made

    def _convert(self, tensor):
        if self.same_tensors:
            return tensor.clone()
        return self.candidate.tensor(tensor.cpu().numpy())

    def as_torch(self, x):
        """A candidate tensor as a torch tensor, for comparing; global tensors as their whole value."""
        if isinstance(x, self.reference_tensor):
            x = x.detach()
            if type(x) is not self.reference_tensor and hasattr(x, "to_local"):
                x = x.full_tensor() if hasattr(x, "full_tensor") else x.to_local()
            return x
        import torch

        return torch.from_numpy(np.array(self.to_numpy(x)))

    def to_numpy(self, x):
        return x.detach().cpu().numpy()

    def copy_state(self, reference, candidate):
        """Give the candidate module the reference module's parameters and buffers."""
        state = {k: self._convert(v.detach()) for k, v in reference.state_dict().items() if hasattr(v, "detach")}
        if not state:
            return
        if all(hasattr(v, "copy_") for v in state.values()) and self.same_tensors:
            mine = dict(candidate.state_dict())
            if mine.keys() == state.keys() and all(mine[k].shape == state[k].shape for k in mine):
                for k in mine:
                    mine[k].detach().copy_(self._beside(state[k], mine[k]))
                return
        candidate.load_state_dict(state, strict=False)

    def _beside(self, tensor, like):
        """A tensor that every rank has, global where `like` is."""
        if not getattr(like, "is_global", False):
            return tensor
        return tensor.to_global(placement=like.placement, sbp=[self.candidate.sbp.broadcast] * len(like.sbp))

    # ------------------------------------------------------------------ random numbers
    def random_state(self):
        """The state of the random stream both sides share; None where they do not."""
        return self.reference.default_generator.get_state() if self.same_tensors else None

    def has_moved(self, state):
        """Has the random stream been drawn from since `state`?"""
        return state is not None and not self.reference.equal(state, self.reference.default_generator.get_state())

    def rewind(self, state):
        if state is not None:
            self.reference.default_generator.set_state(state)

"""Gradient clipping."""


class by_global_norm:
    """Scale all gradients of the optimizer by clip_norm / max(global norm, clip_norm)."""

    def __init__(self, clip_norm):
        self.clip_norm = clip_norm

    @property
    def clip_conf(self):
        return {"clip_by_global_norm": {"clip_norm": self.clip_norm}}

    def clip(self, grads):
        import torch

        squares = [g.float().square().sum() for g in grads]
        norm = torch.stack([s.to(squares[0].device) for s in squares]).sum().sqrt()
        factor = self.clip_norm / torch.clamp(norm, min=self.clip_norm)
        return [g * factor.to(g.device, g.dtype) for g in grads]

"""GraphConfig: `graph.config`, the options of one graph. Each method sets what the engine's Config holds."""
from __future__ import annotations

import torch


class GraphConfig:
    """Options of a graph, set in its __init__ before the first call."""

    def __init__(self, engine_config):
        self._engine = engine_config
        self._train = False

    @property
    def training(self):
        return self._train

    def set_backend(self, name, **options):
        """Compile with this backend: "aten", "inductor", "openvino", "tensorrt" or "xla"; keyword arguments go to it."""
        from ..._graph.backends import check_name

        self._engine.backend = check_name(name)
        self._engine.backend_options = dict(options)

    def enable_cudagraph(self, mode=True):
        """Run the compiled program as a CUDA graph (CUDA tensors only)."""
        self._engine.cudagraph = bool(mode)

    def enable_amp(self, mode=True, *, dtype=torch.float16):
        """Run build() under autocast with this dtype (on the CPU, float16 means bfloat16 as torch's autocast prefers)."""
        self._engine.amp = bool(mode)
        self._engine.amp_dtype = dtype

    def set_gradient_accumulation_steps(self, value):
        """Split every tensor argument into `value` micro batches along dim 0 inside the program; training graphs only."""
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"set_gradient_accumulation_steps takes a whole number of at least 1, got {value!r}")
        self._engine.accumulation = value

    def allow_fuse_model_update_ops(self, mode=True):
        """Trace the optimizer through torch's fused update operator where it has one."""
        self._engine.fuse_update = bool(mode)

    def enable_multi_tensor_update(self, mode=True):
        """Trace the optimizer through torch's multi-tensor (foreach) form."""
        self._engine.multi_tensor = bool(mode)

    def allow_fuse_add_to_output(self, mode=True):
        """Fuse additions into the operator before them."""
        self._engine.fuse_add_to_output = bool(mode)

    def allow_fuse_cast_scale(self, mode=True):
        """Fuse a cast with the multiplication after it."""
        self._engine.fuse_cast_scale = bool(mode)

    def __repr__(self):
        return f"(CONFIG:config:GraphConfig(training={self._train}, ))"

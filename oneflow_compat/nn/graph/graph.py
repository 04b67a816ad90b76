"""class Graph: a build() over modules and optimizers, run as one compiled program by the engine."""
from __future__ import annotations

import torch

from ..._graph import Config, Engine
from .graph_config import GraphConfig
from .proxy import ProxyModule

_counts: dict = {}


class Graph:
    """Subclass it: assign modules and call add_optimizer in __init__, write the step in build(), call the object.

    Programs are made per input signature at the first call with it; train() or eval() before that call decides.
    """

    def __init__(self, *, enable_get_runtime_state_dict=False, debug_v_level=-1, debug_ranks=None, debug_max_py_stack_depth=2,
                 debug_only_user_py_stack=True, debug_op_repr_with_py_stack=False):
        set_ = object.__setattr__
        kind = type(self).__name__
        number = _counts[kind] = _counts.get(kind, -1) + 1
        config = Config()
        set_(self, "_blocks", {})
        set_(self, "_opts", [])
        set_(self, "_grad_scaler", None)
        set_(self, "_name", f"{kind}_{number}")
        set_(self, "config", GraphConfig(config))
        set_(self, "_engine", Engine(
            self.build,
            modules=lambda: {name: block._origin for name, block in self._blocks.items()},
            optimizers=self._opts,
            grad_scaler=lambda: self._grad_scaler,
            recompute=self._recomputed,
            config=config,
            name=self._name,
        ))  # fmt: skip

    # -- for users to write -----------------------------------------------------------
    def build(self, *args, **kwargs):
        """The computation; overridden by the user."""
        raise NotImplementedError(f"{type(self).__name__} does not override build(): write the computation of the graph there")

    # -- setting up ---------------------------------------------------------------------
    def add_optimizer(self, optim, *, lr_sch=None, is_sparse=False):
        """Step this optimizer (and then its lr schedule) at the end of each call."""
        if not isinstance(optim, torch.optim.Optimizer):
            raise TypeError(f"add_optimizer takes an optimizer, got {type(optim).__name__}")
        self._before_first_call("add_optimizer")
        self._opts.append((optim, lr_sch))
        self.config._train = True

    def set_grad_scaler(self, grad_scaler=None):
        """Scale the loss with this GradScaler or StaticGradScaler."""
        self._before_first_call("set_grad_scaler")
        object.__setattr__(self, "_grad_scaler", grad_scaler)

    def _before_first_call(self, what):
        if self.is_compiled:
            raise RuntimeError(f"{what} was called after the first call of graph {self._name}; call it in __init__")

    # -- running ------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        return self._engine(*args, **kwargs)

    @property
    def program(self):
        """The Program last run; None before the first call."""
        return self._engine.program

    @property
    def is_compiled(self):
        return self._engine.program is not None

    @property
    def name(self):
        return self._name

    @property
    def training(self):
        return self.config.training

    # -- modules ------------------------------------------------------------------------
    def __setattr__(self, name, value=None):
        if "_blocks" not in self.__dict__:
            raise AttributeError(f"call super().__init__() before assigning {name!r} in {type(self).__name__}.__init__")
        if isinstance(value, torch.nn.Module):
            self._before_first_call(f"assigning module {name!r}")
            self._blocks[name] = ProxyModule(value, "", name, self)
        else:
            self._blocks.pop(name, None)
            object.__setattr__(self, name, value)

    def __getattr__(self, name):
        blocks = self.__dict__.get("_blocks")
        if blocks is not None and name in blocks:
            return blocks[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def _recomputed(self):
        return [p._origin for block in self._blocks.values() for p in block._proxies() if p.config.activation_checkpointing]

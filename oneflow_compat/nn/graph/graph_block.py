"""GraphModule, GraphTensor: the graph's view of a module or tensor, where its settings live."""
from __future__ import annotations


class _Stage:
    """Pipeline stage settings, common to both views."""

    _stage_id = None
    _stage_placement = None

    @property
    def stage_id(self):
        return self._stage_id

    @stage_id.setter
    def stage_id(self, value):
        self._stage_id = value

    @property
    def stage_placement(self):
        return self._stage_placement

    def set_stage(self, stage_id=None, placement=None):
        """Pipeline stage of this block. On one rank it has no effect on the numbers."""
        self._stage_id = stage_id
        self._stage_placement = placement


class GraphModule(_Stage):
    """Settings of a module inside a graph: `self.m.to(nn.graph.GraphModule)`, also `self.m.config`."""

    def __init__(self, prefix="", name="", belonged_graph=None, belonged_proxy=None):
        self.name_prefix = prefix
        self.name = name
        self._belonged_graph = belonged_graph
        self._belonged_proxy = belonged_proxy
        self._activation_checkpointing = None

    def __repr__(self):
        return f"(GraphModule:{self.name_prefix}{self.name}()): ()"

    @property
    def type(self):
        """Kind of block: "MODULE"."""
        return "MODULE"

    @property
    def scope(self):
        """Name scope of this block: what the names of its operators begin with."""
        return f"{self.name_prefix}{self.name}"

    prev_scope = property(lambda self: self.name_prefix.rstrip("."), doc="name scope around this block")

    def scope_context(self):
        """A context that names what runs inside it after this block in profiles."""
        import torch

        return torch.profiler.record_function(self.scope)

    def debug(self, v_level=0, *, ranks=None, max_py_stack_depth=2, only_user_py_stack=True, op_repr_with_py_stack=False):
        """Print details of the graph this block belongs to, as Graph.debug does."""
        self._belonged_graph.debug(v_level, ranks=ranks, max_py_stack_depth=max_py_stack_depth, only_user_py_stack=only_user_py_stack,
                                   op_repr_with_py_stack=op_repr_with_py_stack)

    @property
    def activation_checkpointing(self):
        return bool(self._activation_checkpointing)

    @activation_checkpointing.setter
    def activation_checkpointing(self, value=False):
        self._activation_checkpointing = value


class GraphTensor(_Stage):
    """Settings of a parameter or buffer inside a graph."""

    def __init__(self, prefix="", name="", belonged_graph=None, belonged_proxy=None, tensor_graph_type=None):
        self.name_prefix = prefix
        self.name = name
        self._belonged_graph = belonged_graph
        self._belonged_proxy = belonged_proxy
        self.type = tensor_graph_type

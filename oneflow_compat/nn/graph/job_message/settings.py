"""The settings of a graph as OneFlow's messages, for `graph.config.proto` and the graph's variable settings.

The engine does not read them. OneFlow's own tests read the options, and the variables of each optimizer.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ...._message import Message, data_type_number
from ..storage.graph_state import named_parameters
from .job_conf import JobConfigProto

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from ...._graph import Config
    from ..graph_members import GraphMembers


class OptimizerConf(Message):
    """One group of an optimizer: its parameters, the initial rate, and the classes that update them."""

    FIELDS = {"variable_op_names": [], "base_learning_rate": 0.0, "optimizer": "", "lr_scheduler": ""}


def job_config(engine: Config, kept: Mapping[str, Any], graph: GraphMembers | None = None) -> JobConfigProto:
    """Return the message of the graph's options that were set, and its optimizers."""
    job = JobConfigProto()
    if graph is not None:
        job.job_name = graph.name
    if graph is not None and graph._opts:
        job.train_conf.SetInParent()
        job.train_conf.optimizer_conf.extend(_optimizer_confs(graph))
    else:
        job.predict_conf.SetInParent()
    for name, on in (
        ("enable_auto_mixed_precision", engine.amp),
        ("enable_fuse_model_update_ops", bool(engine.fuse_update)),
        ("enable_fuse_add_to_output", engine.fuse_add_to_output),
        ("enable_fuse_cast_scale", engine.fuse_cast_scale),
        ("enable_multi_tensor_update", bool(engine.multi_tensor)),
    ):
        if on:
            setattr(job, name, True)
    if engine.amp:
        job.mixed_precision_data_type = data_type_number(engine.amp_dtype, default=9)
    if engine.accumulation > 1:
        job.num_gradient_accumulation_steps = engine.accumulation
    zero = kept.get("enable_zero")
    if zero and zero["mode"]:
        job.optimizer_placement_optimization_mode = (
            "non_distributed" if zero["stage"] == 1 else "distributed_split"
        )
        job.optimizer_placement_optimization_threshold = zero["shard_min_size"]
        job.optimizer_placement_optimization_shard_restore_level = zero["shard_restore_level"]
    for name, value in kept.items():
        field = name.removeprefix("set_").replace("enable_cudnn_conv_heuristic", "cudnn_conv_heuristic")
        if field in job.FIELDS and isinstance(value, (bool, int, float)):
            setattr(job, field, value)
    return job


def _optimizer_confs(graph: GraphMembers) -> Iterator[OptimizerConf]:
    names = named_parameters(graph)
    for optimizer, schedule in graph._opts:
        for group in optimizer.param_groups:
            conf = OptimizerConf(optimizer=type(optimizer).__name__)
            conf.variable_op_names.extend(names[id(p)] for p in group["params"] if p.requires_grad)
            conf.base_learning_rate = float(group.get("initial_lr", group["lr"]))
            if schedule is not None:
                conf.lr_scheduler = type(schedule).__name__
            yield conf


def variables(graph: GraphMembers) -> OrderedDict[torch.nn.Parameter, types.SimpleNamespace]:
    """Return {parameter: its name and its L2 factor} of the graph's modules."""
    l2 = {
        id(p): group.get("weight_decay") or 0.0
        for optimizer, _ in graph._opts
        for group in optimizer.param_groups
        for p in group["params"]
    }
    names = named_parameters(graph)
    settings = OrderedDict()
    for block in graph._blocks.values():
        for p in block._origin.parameters():
            settings[p] = types.SimpleNamespace(name=names[id(p)], l2=l2.get(id(p), 0.0))
    return settings

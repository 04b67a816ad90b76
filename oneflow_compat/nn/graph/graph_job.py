"""The settings of a graph as OneFlow's messages: what `graph.config.proto` and the graph's variable settings tell. Nothing reads them back."""
from __future__ import annotations

import types
from collections import OrderedDict

from ...core.job.job_conf_pb2 import JobConfigProto
from ...core.message import Message, data_type_number

class OptimizerConf(Message):
    """One group of an optimizer; the rate is the one that its schedule begins from."""

    FIELDS = {"variable_op_names": [], "base_learning_rate": 0.0, "optimizer": "", "lr_scheduler": "", "weight_decay": 0.0, "clip_grad_max_norm": 0.0}


def job_config(engine, kept, graph=None) -> JobConfigProto:
    """The options of a graph that were set, and its optimizers."""
    job = JobConfigProto()
    if graph is not None:
        job.job_name = graph.name
    if graph is not None and graph._opts:
        job.train_conf.SetInParent()
        job.train_conf.optimizer_conf.extend(_optimizer_confs(graph))
    else:
        job.predict_conf.SetInParent()
    for name, on in (("enable_auto_mixed_precision", engine.amp), ("enable_fuse_model_update_ops", bool(engine.fuse_update)),
                     ("enable_fuse_add_to_output", engine.fuse_add_to_output), ("enable_fuse_cast_scale", engine.fuse_cast_scale),
                     ("enable_multi_tensor_update", bool(engine.multi_tensor))):
        if on:
            setattr(job, name, True)
    if engine.amp:
        job.mixed_precision_data_type = data_type_number(engine.amp_dtype, default=9)
    if engine.accumulation > 1:
        job.num_gradient_accumulation_steps = engine.accumulation
    zero = kept.get("enable_zero")
    if zero and zero["mode"]:
        job.optimizer_placement_optimization_mode = "non_distributed" if zero["stage"] == 1 else "distributed_split"
        job.optimizer_placement_optimization_threshold = zero["shard_min_size"]
        job.optimizer_placement_optimization_shard_restore_level = zero["shard_restore_level"]
    for name, value in kept.items():
        field = name.removeprefix("set_").replace("enable_cudnn_conv_heuristic", "cudnn_conv_heuristic")
        if field in job.FIELDS and isinstance(value, (bool, int, float)):
            setattr(job, field, value)
    return job


def _optimizer_confs(graph):
    from .graph_state import _named_parameters

    names = _named_parameters(graph)
    for optimizer, schedule in graph._opts:
        for group in optimizer.param_groups:
            conf = OptimizerConf(optimizer=type(optimizer).__name__)
            conf.variable_op_names.extend(names[id(p)] for p in group["params"] if p.requires_grad)
            conf.base_learning_rate = float(group.get("initial_lr", group["lr"]))
            if schedule is not None:
                conf.lr_scheduler = type(schedule).__name__
            for name in ("weight_decay", "clip_grad_max_norm"):
                if group.get(name):
                    setattr(conf, name, float(group[name]))
            yield conf


def variables(graph) -> OrderedDict:
    """{parameter: its name and its L2 factor} of the graph's modules."""
    from .graph_state import _named_parameters

    l2 = {id(p): group.get("weight_decay") or 0.0 for optimizer, _ in graph._opts for group in optimizer.param_groups for p in group["params"]}
    names = _named_parameters(graph)
    found = OrderedDict()
    for block in graph._blocks.values():
        for p in block._origin.parameters():
            found[p] = types.SimpleNamespace(name=names[id(p)], l2=l2.get(id(p), 0.0))
    return found

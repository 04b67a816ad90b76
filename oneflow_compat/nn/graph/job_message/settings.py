"""The settings of a graph as OneFlow's messages, for `graph.config.proto` and the graph's variable settings.
Nothing reads the messages back.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ...._message import Message, data_type_number
from ...._tables.job_optimizers import OPTIMIZERS, SCHEDULES, messages
from ..storage.graph_state import named_parameters
from .job_conf import JobConfigProto

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from ...._graph import Config
    from ..graph_members import GraphMembers


class LearningRateDecay(Message):
    """A schedule. A schedule of several schedules holds one such message for each."""

    FIELDS = messages(SCHEDULES) | {
        "sequential_scheduler_conf": {"schedulers": [], "milestones": [], "interval_rescaling": []}
    }
    ONEOF = {"type": tuple(FIELDS)}


class OptimizerConf(Message):
    """One group of an optimizer; the rate is the initial rate of its schedule."""

    FIELDS = {
        "variable_op_names": [],
        "base_learning_rate": 0.0,
        "optimizer": "",
        "lr_scheduler": "",
        "learning_rate_decay": LearningRateDecay,
        "clip_conf": {"clip_by_global_norm": {"max_norm": 0.0, "norm_type": 0.0}},
        "weight_decay_conf": {"weight_decay_rate": 0.0},
        "naive_conf": {},
    } | messages(OPTIMIZERS)
    ONEOF = {"normal_mdupdt": ("naive_conf", *messages(OPTIMIZERS))}


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
                _tell_schedule(conf.learning_rate_decay, schedule)
            _tell_group(conf, group)
            yield conf


def _tell_group(conf: OptimizerConf, group: Mapping[str, Any]) -> None:
    """Fill the message with what an optimizer of OneFlow applies to a group, decay and clipping."""
    message: str
    fields: dict[str, Any]
    message, fields = OPTIMIZERS.get(conf.optimizer, ("naive_conf", {}))
    if message == "momentum_conf" and not group.get("momentum"):
        message, fields = "naive_conf", {}
    if conf.optimizer in OPTIMIZERS:
        getattr(conf, message).SetInParent()
    _fill(
        getattr(conf, message),
        {f: group[n[0]][n[1]] if isinstance(n, tuple) else group.get(n) for f, n in fields.items()},
    )
    if group.get("weight_decay") and (conf.optimizer == "AdamW" or group.get("adam_w_mode")):
        conf.weight_decay_conf.weight_decay_rate = float(group["weight_decay"])
    if group.get("clip_grad_max_norm"):
        _fill(
            conf.clip_conf.clip_by_global_norm,
            {"max_norm": group["clip_grad_max_norm"], "norm_type": group.get("clip_grad_norm_type", 2.0)},
        )


def _tell_schedule(decay: LearningRateDecay, schedule: Any) -> None:
    if hasattr(schedule, "milestones") and hasattr(schedule, "interval_rescaling"):
        several = decay.sequential_scheduler_conf
        several.SetInParent()
        for part in schedule.schedulers:
            several.schedulers.append(LearningRateDecay())
            _tell_schedule(several.schedulers[-1], part)
        several.milestones.extend(schedule.milestones)
        several.interval_rescaling.extend(map(int, schedule.interval_rescaling))
        return
    message: str | None
    fields: dict[str, Any]
    message, fields = SCHEDULES.get(type(schedule).__name__, (None, {}))
    if message is not None:
        getattr(decay, message).SetInParent()
        _fill(
            getattr(decay, message),
            {f: getattr(schedule, n, None) if isinstance(n, str) else n for f, n in fields.items()},
        )


def _fill(message: Message, values: Mapping[str, Any]) -> None:
    """Set the fields that are plain scalars and lists of scalars."""
    for name, value in values.items():
        field_class = type(message.FIELDS[name])
        if isinstance(value, (bool, int, float)) and field_class is not list:
            setattr(message, name, field_class(value))
        elif isinstance(value, (list, tuple)):
            getattr(message, name).extend(value)


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

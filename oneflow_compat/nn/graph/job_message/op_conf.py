"""Activation codes that old model code passes as numbers, and the messages of OneFlow's operators: feed and
fetch (`_oneflow_internal.jobs`), and those of a graph's job (`nn/graph/job_message/program.py`).
"""

from ...._message import Map, Message

kNone, kTanH, kSigmoid, kRelu = range(4)


class FeedInputOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}


class FeedVariableOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}


class FetchOutputOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}


_SHAPE: dict[str, list[int]] = {"dim": []}
_BLOB = {"shape": _SHAPE, "data_type": 0, "is_dynamic": False}


class BlobDesc(Message):
    """Size and type of one value of a job."""

    FIELDS = _BLOB


class AttrValue(Message):
    """One setting of an operator: the field of its kind is set."""

    FIELDS = {
        "at_int32": 0,
        "at_int64": 0,
        "at_bool": False,
        "at_float": 0.0,
        "at_double": 0.0,
        "at_string": "",
        "at_shape": _SHAPE,
        "at_data_type": 0,
        "at_list_int32": {"val": []},
        "at_list_int64": {"val": []},
        "at_list_float": {"val": []},
    }
    ONEOF = {"value": tuple(FIELDS)}


class OperatorConf(Message):
    """One operator of a job: an input, a variable, an output, or (user_conf) a computation with settings."""

    FIELDS = {
        "name": "",
        "device_tag": "",
        "loc": "",
        "variable_conf": {"out": "", "shape": _SHAPE, "data_type": 0},
        "input_conf": {"out": "", "blob_conf": _BLOB},
        "output_conf": {"in": "", "out": "", "blob_conf": _BLOB},
        "user_conf": {
            "op_type_name": "",
            "input": Map(),
            "output": Map(),
            "attr": Map(),
            "input_order": [],
            "output_order": [],
        },
    }
    ONEOF = {"op_type": ("variable_conf", "input_conf", "output_conf", "user_conf")}


class ListString(Message):
    FIELDS = {"s": []}

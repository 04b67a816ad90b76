"""Activation codes that old model code passes as numbers, and the messages of OneFlow's feed and fetch operators (`_oneflow_internal.jobs`)."""
from ..message import Message

kNone, kTanH, kSigmoid, kRelu = range(4)


class FeedInputOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}


class FeedVariableOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}


class FetchOutputOpConf(Message):
    FIELDS = {"in_0": "", "out_0": ""}

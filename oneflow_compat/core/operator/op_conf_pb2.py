"""oneflow.core.operator.op_conf_pb2."""

from ...nn.graph.job_message.op_conf import (  # noqa: F401
    AttrValue,
    BlobDesc,
    FeedInputOpConf,
    FeedVariableOpConf,
    FetchOutputOpConf,
    ListString,
    OperatorConf,
)

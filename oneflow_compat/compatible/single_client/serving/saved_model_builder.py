"""Deep path of flow.saved_model."""

from ..saved_model import GetInterfaceBlobConf, GraphBuilder, Lbi2Lbn, Lbn2Lbi, ModelBuilder, SignatureBuilder

__all__ = ["GetInterfaceBlobConf", "GraphBuilder", "Lbi2Lbn", "Lbn2Lbi", "ModelBuilder", "SignatureBuilder"]

"""flow.serving: run saved models."""

from . import inference_session, saved_model_builder
from .inference_session import InferenceSession, ModelVersionPolicy, SessionOption

__all__ = [
    "InferenceSession",
    "ModelVersionPolicy",
    "SessionOption",
    "inference_session",
    "saved_model_builder",
]

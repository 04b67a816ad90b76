"""flow.summary: scalars, images, histograms, texts, hyper-parameters to a TensorBoard event file."""

from . import summary_graph, summary_hparams, summary_projector
from ._writer import create_summary_writer, flush_summary_writer, histogram, image, pb, scalar
from .summary_graph import Graph
from .summary_hparams import HParam, Hparam, IntegerRange, Metric, RealRange, ValueSet, hparams, text
from .summary_projector import Projector

__all__ = [
    "Graph",
    "HParam",
    "Hparam",
    "IntegerRange",
    "Metric",
    "Projector",
    "RealRange",
    "ValueSet",
    "create_summary_writer",
    "flush_summary_writer",
    "histogram",
    "hparams",
    "image",
    "pb",
    "scalar",
    "summary_graph",
    "summary_hparams",
    "summary_projector",
    "text",
]

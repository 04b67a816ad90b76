"""oneflow.utils.data: torch.utils.data, with OneFlow's samplers, DataLoader and collation, and writers of
OFRecord and OneRec files.
"""

from ... import _bind
from ..._data.onerec import OneRecWriter  # noqa: F401
from ..._data.records import (  # noqa: F401
    CorruptRecord,
    RecordWriter as OFRecordWriter,
    read_file as read_ofrecord,
)
from . import dataloader, decorator, distributed, sampler  # noqa: F401
from .dataloader import DataLoader, default_collate  # noqa: F401
from .decorator import functional_datapipe, guaranteed_datapipes_determinism, non_deterministic  # noqa: F401
from .distributed import DistributedSampler  # noqa: F401
from .sampler import (  # noqa: F401
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.utils.data")

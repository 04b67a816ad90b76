"""oneflow.utils.data: torch.utils.data, with OneFlow's samplers, DataLoader and collation, and writers of
OFRecord and OneRec files.
"""

from ... import _bind
from ..._data.onerec import OneRecWriter
from ..._data.records import (
    CorruptRecord,
)
from ..._data.records import (
    RecordWriter as OFRecordWriter,
)
from ..._data.records import (
    read_file as read_ofrecord,
)
from . import dataloader, decorator, distributed, sampler
from .dataloader import DataLoader, default_collate
from .decorator import functional_datapipe, guaranteed_datapipes_determinism, non_deterministic
from .distributed import DistributedSampler
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

__getattr__, __dir__ = _bind.fall_through(__name__, "torch.utils.data")

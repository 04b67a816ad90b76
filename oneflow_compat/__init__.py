"""OneFlow on PyTorch: `import oneflow as flow` runs OneFlow programs, `import oneflow as torch` PyTorch's.

Tensors are torch tensors. Names come from the tables in `_tables/` (see `_bind.py`) and else from
torch itself; `oneflow.nn.Graph` turns a training step into one compiled program.
"""

if __name__ != "oneflow":
    raise ImportError(
        f"this package is imported as `oneflow`, not as {__name__!r}: install it (pip install .) and write"
        " `import oneflow`"
    )

import torch as _torch

from . import _bind, _cpu_for_cuda, _import_hook, _installation, _torch_attributes
from ._upstream import clients, notices
from .version import __git_commit__
from .version import __version__ as _version

_installation.warn_about_conflicts()
_import_hook.install_import_hook()
clients.install()
notices.install()
_cpu_for_cuda.install()
_torch_attributes.add_tensor_and_module_attributes()

Tensor = _torch.Tensor
__version__ = _torch.torch_version.TorchVersion(_version)  # a text that also compares with tuples

from . import nn, sbp
from ._global.placement import placement

__getattr__, __dir__ = _bind.fall_through(__name__, "torch", also="compatible.single_client")

if _bind.dialect_at_start() != "oneflow":
    __getattr__("set_dialect")(_bind.dialect_at_start())

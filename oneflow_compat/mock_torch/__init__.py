"""oneflow.mock_torch: make `import torch` in user code yield oneflow.

    with oneflow.mock_torch.enable():      # or enable() ... disable()
        import torch                       # is oneflow, with torch's dialect

torch's own code, and this package, keep seeing the real torch: an `import` statement is redirected
by the module it stands in, nothing in sys.modules is replaced. Only a file (not a package) that was
imported under the mock is imported again by an `import` of it outside, as in OneFlow.
"""

from .dummy import DummyModule
from .dyn_mock_mod import DynamicMockModule
from .messages import error_msg
from .mock_importer import ModuleWrapper, OneflowImporter, disable, enable, is_enabled

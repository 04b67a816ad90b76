"""oneflow.mock_torch: make `import torch` in user code yield oneflow.

    with oneflow.mock_torch.enable():      # or enable() ... disable()
        import torch                       # is oneflow, with torch's dialect

torch's own code and this package keep importing the real torch: whether an `import` statement is redirected
depends on the module that contains it, and nothing in sys.modules is replaced. A file (not a package) that
was imported under the mock is imported again if it is imported outside the mock, as in OneFlow.
"""

from .dummy import DummyModule, error_msg
from .dyn_mock_mod import DynamicMockModule
from .mock_importer import ModuleWrapper, OneflowImporter, disable, enable, is_enabled

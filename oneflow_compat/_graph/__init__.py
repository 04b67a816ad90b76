"""The engine: a Python build function becomes one captured ATen program per input signature.

Two front ends use it (nn/graph/ and compatible/single_client/); it knows neither. The entry point:

    definition = GraphDefinition(
        build,                # callable(*args, **kwargs); runs only while a program is captured
        modules={},           # {prefix: nn.Module}: their parameters and buffers are named "prefix.a.b"
        tensors={},           # {name: Tensor}: further named state (a get_variable table)
        optimizers=(),        # [(torch.optim.Optimizer, lr scheduler or None), ...]
        grad_scaler=None,     # torch.amp.GradScaler, StaticGradScaler or None
        recompute=(),         # modules whose activations are recomputed in backward
        stages=tuple,         # returns the modules with a pipeline stage
        name="graph",
        owner=None,           # the object whose method build() is: its attributes are state
        writes_through=lambda: True,  # False: writes to arguments and captured tensors stay inside the call
    )
    engine = Engine(definition, Config())  # Config: what passes and which backend; see config.py
    out = engine(*args, **kwargs)         # build + backward + clip + unscale + step, then scheduler.step()
    engine.compile(*args, **kwargs)       # capture and compile without running: returns the Program
    engine.program                        # the last used Program, None before the first call
    engine.programs                       # every cached Program, most recently used last

`modules`, `tensors`, `optimizers`, `grad_scaler` and `recompute` may each be a callable that returns the
value. They are read after build() has run under capture, so a front end may create variables and its
optimizer inside build. Real tensors created inside build (variables, constants kept between calls) must be
created under

    with outside_capture(): ...

Otherwise they are symbolic and die with the capture. `capturing()` is true while build runs.

Rules both front ends can rely on:
- build must call backward itself; the engine only steps optimizers afterwards. A call does not change p.grad,
  and gradients never accumulate between calls.
- Every real tensor that the captured code touches is a live input of the program. Module state is located by
  its path in the module, optimizer state by its path in optimizer.state, and other tensors by object.
- group["lr"] is an input. Groups that have clip_grad_max_norm and clip_grad_norm_type are clipped by
  their own total norm before the update.
- An exception inside build leaves parameters, buffers, gradients, optimizer state and the random state
  unchanged.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._upstream.hooks import GRAPHS
from .._upstream.missing import require

if TYPE_CHECKING:
    from .._active import capturing as capturing
    from .._active import outside_capture as outside_capture
    from .argument_numbers import ArgumentNumbers as ArgumentNumbers
    from .call.entry import Entry as Entry
    from .capture.patches.patching import global_hook as global_hook
    from .capture.update import sparse_rows as sparse_rows
    from .capture.update.step import external_updates as external_updates
    from .compile import check_name as check_name
    from .compile import last_release as last_release
    from .compile import missing_package as missing_package
    from .compile.program_cache.store import Store as Store
    from .compile.program_cache.store import Unsafe as Unsafe
    from .compile.program_cache.store import default_folder as default_folder
    from .compile.program_cache.store import quota as quota
    from .compile.proof import records as records
    from .config import Config as Config
    from .cut_step import CutStep as CutStep
    from .definition import GraphDefinition as GraphDefinition
    from .eager_calls import EagerCalls as EagerCalls
    from .eager_calls import warn_of_eager_calls as warn_of_eager_calls
    from .engine import Engine as Engine
    from .errors import CodeLocation as CodeLocation
    from .errors import inside_another as inside_another
    from .errors import location_text as location_text
    from .errors import user_location as user_location
    from .explanations import Explanation as Explanation
    from .explanations import explained as explained
    from .explanations import of_samplers as of_samplers
    from .observe import why_unobserved as why_unobserved
    from .pipeline_plan import SCHEDULES as SCHEDULES
    from .pipeline_plan import StagedModule as StagedModule
    from .program import html_report as html_report
    from .program.captured import Effects as Effects
    from .program.codegen import compile_program as compile_program
    from .program.locations import GroupOption as GroupOption
    from .program.object_trees import refers_to_arguments as refers_to_arguments
    from .program.passes import pass_names as pass_names
    from .program.program import Program as Program
    from .program.program import Slot as Slot
    from .saved import package as package
    from .saved import schedules as schedules
    from .saved import writer as writer
    from .saved.loaded import LoadedGraph as LoadedGraph
    from .saved.state_writes import with_state_writes as with_state_writes
    from .tracebacks import fold as fold

require(GRAPHS)

# {module: names that the front ends may use}. A module loads on first use of one of its names.
_FACE = {
    ".._active": "capturing outside_capture",
    ".argument_numbers": "ArgumentNumbers",
    ".call.entry": "Entry",
    ".capture.patches.patching": "global_hook",
    ".capture.update.step": "external_updates",
    ".compile": "check_name last_release missing_package",
    ".compile.program_cache.store": "Store Unsafe default_folder quota",
    ".config": "Config",
    ".cut_step": "CutStep",
    ".definition": "GraphDefinition",
    ".eager_calls": "EagerCalls warn_of_eager_calls",
    ".engine": "Engine",
    ".errors": "CodeLocation inside_another location_text user_location",
    ".explanations": "Explanation explained of_samplers",
    ".observe": "why_unobserved",
    ".pipeline_plan": "SCHEDULES StagedModule",
    ".program.captured": "Effects",
    ".program.codegen": "compile_program",
    ".program.locations": "GroupOption",
    ".program.object_trees": "refers_to_arguments",
    ".program.passes": "pass_names",
    ".program.program": "Program Slot",
    ".saved.loaded": "LoadedGraph",
    ".saved.state_writes": "with_state_writes",
    ".tracebacks": "fold",
}
_HOME = {name: module for module, names in _FACE.items() for name in names.split()}
# Modules that the front ends use as such.
_MODULES = {
    "html_report": ".program.html_report",
    "package": ".saved.package",
    "records": ".compile.proof.records",
    "schedules": ".saved.schedules",
    "sparse_rows": ".capture.update.sparse_rows",
    "writer": ".saved.writer",
}


def __getattr__(name: str) -> Any:
    """Resolve a name of `_HOME` or `_MODULES` on first use, so that importing the package costs nothing."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name], __name__), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name], __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value

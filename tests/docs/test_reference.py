"""The API pages document the errors and input shapes of every function and class of this package."""

import ast
import builtins
import importlib.util
import inspect
import re
import textwrap
import types
from pathlib import Path

import pytest

# The pages look at names of torch that warn when they are read, such as torch.distributed.reduce_op.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

ROOT = Path(__file__).parents[2]
TENSOR_PARAMETERS = set(
    "x input inputs tensor tensors weight query logits pred prediction boxes indices ids grad label labels"
    " target mask vec like".split()
)
SHAPE = re.compile(
    r"torch\.|torch's|\((\.\.\.|\*?[\w.`]+)(, [^()]+)*,?\)|\[\w+(,"
    r" \w+)*\]|shape|dtype|dimension|element|numbers?\b"
)
WITHOUT_ERRORS = {  # methods that Python calls, and a class that only passes calls on
    "__getattr__",
    "__setattr__",
    "Proxy.to",
}
WITHOUT_SHAPES = {
    "one_embedding_id_shuffle": "its docstring names the outputs; their sizes are those of the ids",
    "is_better": "compares two numbers",
    "OneflowImporter.find_spec": "`target` is a module here",
}


@pytest.fixture(scope="module")
def own_entries():
    """Return (name, object, docstring and text of the page) of the functions and classes that this package
    implements.
    """
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    import api_reference

    own = {}
    for page, entries in api_reference.entries_by_module().items():
        for entry in entries:
            name = f"{page}.{entry.name}"
            target, _ = api_reference.resolve(name)
            target = getattr(target, "__func__", target)
            module = getattr(target, "__module__", None) or ""
            if callable(target) and module.split(".")[0] in ("oneflow", "oneflow_autotest"):
                text = f"{api_reference.own_doc(target)}\n{entry.description} {entry.details}"
                own.setdefault(id(target), (name, target, text))
    return list(own.values())


def code_of(target):
    """Return the function whose errors a caller meets first, or None."""
    if isinstance(target, type):
        init = vars(target).get("__init__")
        return init if isinstance(init, types.FunctionType) else None
    return target if isinstance(target, types.FunctionType) else None


def raised_classes(function):
    """Return, for each class that the function itself raises, the names by which a user can catch it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and isinstance(node.exc.func, ast.Name)
        ):
            name = node.exc.func.id
            error = function.__globals__.get(name, getattr(builtins, name, None))
            if isinstance(error, type):
                yield [base.__name__ for base in error.__mro__ if base not in (Exception, object)]


def test_page_names_the_errors_of_each_function(own_entries):
    silent = []
    for name, target, text in own_entries:
        function = code_of(target)
        if function is None or name.endswith(tuple(WITHOUT_ERRORS)):
            continue
        if any(not any(base in text for base in bases) for bases in raised_classes(function)):
            silent.append(name)
    assert len(own_entries) > 900
    assert silent == [], "say in the docstring what the function raises, and when"


def test_page_tells_the_shapes_of_each_function_of_tensors(own_entries):
    silent = []
    for name, target, text in own_entries:
        if isinstance(target, type) or name.endswith(tuple(WITHOUT_SHAPES)):
            continue
        try:
            parameters = set(inspect.signature(target).parameters)
        except (TypeError, ValueError):
            continue
        if parameters & TENSOR_PARAMETERS and not SHAPE.search(text):
            silent.append(name)
    assert silent == [], (
        "say in the docstring which shapes the function takes and gives, or whose function it is"
    )


def test_page_shows_the_whole_docstring():
    page = (ROOT / "docs" / "api" / "oneflow.md").read_text(encoding="utf-8")
    entry = page.partition("### `roi_align`")[2].partition("\n### ")[0]
    assert "(R, C," in entry and "RuntimeError for x or rois of another shape." in entry

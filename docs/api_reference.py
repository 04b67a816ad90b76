"""The data of the API pages: each public name with its signature, description and relation to torch."""
import functools
import importlib
import inspect
import re
import textwrap
import types
from dataclasses import dataclass
from pathlib import Path

import torch
from descriptions import UNDOCUMENTED
from torch_pages import torch_page

from oneflow._tables.aliases import ALIASES
from oneflow._tables.c_ops import C_OPS
from oneflow._tables.differences import DIFFERENCES
from oneflow._tables.functions import FUNCTIONS
from oneflow._tables.graph_config import GRAPH_CONFIG
from oneflow._tables.knobs import KNOBS
from oneflow._tables.module import MODULE
from oneflow._tables.renames import RENAMES
from oneflow._tables.tensor import TENSOR

NAMES_FILE = Path(__file__).parent / "api" / "names.txt"
# Modules and classes that have a page of their own although no table has rows for them.
PAGES = {f"oneflow.{name}" for name in (
    "Tensor", "amp", "asyncs", "boxing", "comm", "core", "env", "framework", "fx", "mock_torch", "nn.Module",
    "nn.graph", "nn.image", "nn.modules", "nn.optimizer", "nn.qat", "one_embedding", "optim", "optim.lr_scheduler",
    "remat", "sysconfig", "test_utils", "unittest", "utils.global_view", "utils.tensor", "utils.vision")}
ALIAS = "Same as torch."
RENAMED = "torch's function with OneFlow's argument names."
OWN = "Implemented here."
CUSTOM = "Custom operator."
SUBMODULE = "Module."
INSTANCE = "Set on each instance."
MISSING = "Not available."
KERNEL_PACKAGES = ("oneflow._kernels",)  # where the Python side of custom operators lives
SIGNATURE_WIDTH = 84
DESCRIPTION_WIDTH = 240
CODE_WORD = r"(?<![`\w.])(?:\w+_\w*|(?:torch|oneflow|nn|Tensor)(?:\.\w+)+)(?:=\w+)?(?![\w`])(?=[^`]*(?:`[^`]*`[^`]*)*$)"
REFERENCE = r"(?:See )?`(torch\.[\w.]+?)(?:\(\))?`\.?$"
SENTENCE_END = r"(?<!e\.g)(?<!i\.e)(?<!etc)(?<!vs)[.](?=\s+[A-Z`:(]|$)"
OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
VALUE_NOUNS = {torch.dtype: "Data type", torch.memory_format: "Memory format", torch.layout: "Memory layout"}


@dataclass(frozen=True)
class Entry:
    name: str  # relative to its module, as "Adam.step"
    signature: str
    description: str
    details: str  # what a docstring of this package says after its first sentence, as Markdown
    relation: str
    differences: tuple[str, ...]
    torch_name: str = ""  # of torch's object, if the name is one
    torch_address: str = ""  # of its page in torch's documentation


def table_modules():
    modules = {*ALIASES, *FUNCTIONS, *RENAMES, "oneflow._C"}
    return sorted(modules - {"oneflow.Tensor", "oneflow.nn.Module"})


def sentence(text):
    """Return a text as a sentence: a capital letter in front, a full stop at the end."""
    text = text.strip()
    if re.match(r"(?!torch|oneflow)[a-z-]+ (?:[a-z]+\b|[A-Z(`0-9])", text):  # not a formula such as "x * y"
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def relations_of_tables():
    """Return {public name: relation to torch} of all names that have a row in a table."""
    relations = {}
    for module in table_modules():
        rows = dict.fromkeys(ALIASES.get(module, "").split(), ALIAS)
        rows.update(dict.fromkeys(RENAMES.get(module, {}), RENAMED))
        for names in (*FUNCTIONS.get(module, {}).values(), *(C_OPS.values() if module == "oneflow._C" else ())):
            rows.update({name.partition("=")[0]: OWN for name in names.split()})
        relations.update({f"{module}.{name}": relation for name, relation in rows.items()})
    relations.update({f"oneflow.{name}": sentence(f"Ignored: {why}") for name, (_, _, why) in KNOBS.items()})
    for owner in ("oneflow.nn.Graph.config", "oneflow.nn.graph.graph_config.GraphConfig"):
        relations.update({f"{owner}.{name}": sentence(f"Option of nn.Graph, {kind}") for name, (kind, _) in GRAPH_CONFIG.items()})
    for owner, rows in (("oneflow.Tensor", TENSOR), ("oneflow.nn.Module", MODULE)):
        relations.update({f"{owner}.{name}": sentence(f"Added here: {why}") for name, (_, _, why) in rows.items()})
    return relations


@functools.cache
def resolve(dotted):
    """Return the object behind a dotted name and its owner; (None, None) if only instances or nothing have it."""
    root, *parts = dotted.split(".")
    target, path, owner = importlib.import_module(root), root, None
    for part in parts:
        path, owner = f"{path}.{part}", target
        try:
            target = inspect.getattr_static(target, part) if isinstance(target, type) else getattr(target, part)
        except (AttributeError, RuntimeError, AssertionError):
            try:
                target = importlib.import_module(path)
            except (ImportError, AttributeError):
                try:  # a function may hide the module of its name
                    target = getattr(importlib.import_module(path.rpartition(".")[0]), part)
                except (ImportError, AttributeError):
                    return None, None
    return target, owner


def in_torch(name):
    return "torch" + name.removeprefix("oneflow")


def relation_of_object(name, target, owner):
    """Return the relation to torch of a name that no table mentions."""
    if owner is None:
        parent, grandparent = resolve(name.rpartition(".")[0])
        return INSTANCE if grandparent is not None and getattr(parent, "__dictoffset__", 1) else MISSING
    if isinstance(target, types.ModuleType):
        return SUBMODULE
    module = getattr(target, "__module__", None) or getattr(owner, "__module__", None) or ""
    added_to_torch = module.split(".")[0] == "oneflow"  # a method that this package gives to torch's class
    if module.split(".")[0] == "torch" or (target is resolve(in_torch(name))[0] and not added_to_torch):
        return ALIAS
    return CUSTOM if module.startswith(KERNEL_PACKAGES) else OWN


class Annotation(str):
    """An annotation that a signature shows without quotes."""

    __repr__ = str.__str__


def shown_annotation(annotation):
    """Return an annotation as the page shows it; Any and None say nothing."""
    if not isinstance(annotation, str):
        return annotation
    return inspect.Parameter.empty if annotation in ("Any", "None") else Annotation(annotation)


def shown_signature(signature):
    parameters = [
        p.replace(annotation=p.empty if p.name == "self" else shown_annotation(p.annotation))
        for p in signature.parameters.values()
    ]
    return signature.replace(
        parameters=parameters, return_annotation=shown_annotation(signature.return_annotation)
    )


def python_signature(target):
    """Return the signature that Python reports, or the first line of a built-in's docstring if it is one."""
    try:
        return re.sub(r" at 0x\w+", "", str(shown_signature(inspect.signature(target))))
    except (TypeError, ValueError):
        first_line = (getattr(target, "__doc__", None) or "").strip().split("\n")[0]
        call = re.match(r"\w+(\(.*\)(?: -> .*)?)$", first_line)
        return call[1] if call else ""


def signature_of(name, target):
    if not callable(target) or isinstance(target, types.ModuleType):
        return ""
    signature = python_signature(target)
    if isinstance(target, type):
        signature = signature.removesuffix(" -> None")
    line = f"{name.rpartition('.')[2]}{signature}"
    return textwrap.fill(line, SIGNATURE_WIDTH, subsequent_indent="    ", break_long_words=False) if signature else ""


def plain(text):
    """Return reStructuredText of a docstring as plain Markdown text."""
    text = re.sub(r":\w+(?::\w+)?:`~?([^`<]*?)(?:\s*<[^>]*>)?`", r"`\1`", text)
    text = re.sub(r"`([^`<]+?)\s*<[^>]*>`__?", r"\1", text).replace("``", "`")
    text = re.sub(r"\\(?:text|mathrm|operatorname)\{(.*?)\}", r"\1", text)
    text = re.sub(CODE_WORD, r"`\g<0>`", " ".join(text.split()))
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_\[\]\\{}])", r"\\\1", part).replace("<", "&lt;") for part in parts)


def first_sentence(doc):
    """Return the first sentence of a docstring, without the signatures that built-in functions put in front."""
    paragraphs = [p for p in re.split(r"\n\s*\n", inspect.cleandoc(doc)) if p.strip()]
    for paragraph in paragraphs:
        if re.match(r"[\w.]+\(.*\)\s*(->|:|$)|\.\.|:\w+:? |>>>|Args?:|[-=~]{3}", paragraph):
            continue
        text = " ".join(paragraph.split())
        text = re.sub(r"^oneflow[\w.]*: ", "", text)
        end = re.search(SENTENCE_END, text)
        return textwrap.shorten(plain(text[:end.start()] if end else text).lstrip("- "), DESCRIPTION_WIDTH, placeholder=" ...")
    return ""


def paragraphs_as_markdown(paragraphs):
    """Return paragraphs of a docstring as Markdown; lists keep their lines, examples become code."""
    texts = []
    for paragraph in paragraphs:
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines) or lines[0].startswith(">>>"):
            texts.append("\n".join(("```python", textwrap.dedent(paragraph), "```")))
        elif lines[0].startswith("- "):
            items = re.split(r"\n- ", paragraph[2:])
            texts.append("\n".join(f"- {plain(item)}" for item in items))
        else:
            texts.append(plain(paragraph))
    return "\n\n".join(texts)


def details_of(target):
    """Return what the docstring of an object of this package says after its first sentence."""
    doc = own_doc(target)
    if not doc or (getattr(target, "__module__", None) or "").split(".")[0] not in ("oneflow", "oneflow_autotest"):
        return ""
    summary, *rest = [p for p in re.split(r"\n\s*\n", inspect.cleandoc(doc)) if p.strip()]
    text = " ".join(summary.split())
    end = re.search(SENTENCE_END, text)
    further = text[end.end():].strip() if end else ""
    return paragraphs_as_markdown([*([further] if further else []), *rest])


def own_doc(target):
    """Return the docstring of an object unless it is only that of its type."""
    doc = getattr(target, "__doc__", None) if not callable(target) or isinstance(target, type) else inspect.getdoc(target)
    return "" if not isinstance(doc, str) or (not isinstance(target, type) and doc == type(target).__doc__) else doc


def documented_twins(name):
    """Yield objects that mean the same as a name and may have the docstring that it lacks."""
    short = name.rpartition(".")[2]
    yield resolve(in_torch(name))[0]
    for owner in ("oneflow", "torch", "oneflow.nn.functional", "torch.nn.functional", "torch.Tensor", "oneflow.Tensor"):
        yield resolve(f"{owner}.{short}")[0]
    if short.endswith("_") and not short.endswith("__"):
        yield resolve(f"torch.{short[:-1]}")[0]


def followed(text):
    """Return the description that a text such as "See torch.abs" refers to, or the text."""
    reference = re.match(REFERENCE, text)
    target = resolve(reference[1])[0] if reference else None
    return (first_sentence(own_doc(target)) if own_doc(target) else "") or text


def description_of(name, target):
    """Return one sentence about a name."""
    short = name.rpartition(".")[2]
    if name.startswith(("oneflow.nn.Graph.config.", "oneflow.nn.graph.graph_config.GraphConfig.")) and short in GRAPH_CONFIG:
        return sentence(plain(GRAPH_CONFIG[short][1]))
    text = followed(first_sentence(own_doc(target))) if target is not None else ""
    if text:
        return sentence(text)
    if callable(target) or target is None:
        for twin in documented_twins(name):
            text = followed(first_sentence(own_doc(twin))) if callable(twin) else ""
            if text:
                return sentence(text)
    return undocumented(name) or operator_description(short) or fallback_description(name, target)


def undocumented(name):
    """Return the sentence of descriptions.py for a name, or an empty string."""
    parts = name.split(".")
    endings = [".".join(parts[start:]) for start in range(len(parts))]
    if name.endswith("_dtype_seq"):
        endings.append("_dtype_seq")
    return next((UNDOCUMENTED[ending] for ending in endings if ending in UNDOCUMENTED), "")


def operator_description(short):
    """Return the description of a method such as __radd__, or an empty string."""
    for base, symbol in OPERATORS.items():
        if short == f"__{base}__":
            return f"Operator `{symbol}`."
        if short == f"__r{base}__":
            return f"Operator `{symbol}` with the tensor on the right side."
        if short == f"__i{base}__":
            return f"In-place operator `{symbol}=`."
    return ""


def fallback_description(name, target):
    """Return what the type of an undocumented object tells."""
    owner = name.removeprefix("oneflow.").rpartition(".")[0] or "oneflow"
    short = name.rpartition(".")[2]
    if short.endswith("_") and not short.endswith("__"):
        return f"In-place version of `{short[:-1]}`."
    if isinstance(target, (int, float, str, bool)):
        is_path = isinstance(target, str) and Path(target).is_absolute()  # of the machine that writes the page
        return "Constant, a path." if is_path else f"Constant, `{target!r}`."
    for library_type, noun in VALUE_NOUNS.items():
        if isinstance(target, library_type):
            return f"{noun}, `{target}`."
    if isinstance(target, types.ModuleType):
        return f"Module `{name}`."
    if isinstance(target, type):
        return f"Class of `{owner}`."
    if isinstance(target, property) or type(target).__name__ in ("getset_descriptor", "member_descriptor"):
        return f"Property of `{owner}`."
    return f"Function of `{owner}`." if callable(target) else f"Attribute of `{owner}`."


def module_summary(module):
    """Return one sentence about a module of the API."""
    target, _ = resolve(module)
    return description_of(module, target)


def public_names(relations):
    """Return all names of the pages: those of names.txt, of the tables, and of the __all__ of our own modules."""
    names = {*relations, *NAMES_FILE.read_text(encoding="utf-8").split()}
    for page in PAGES:
        module, _ = resolve(page)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if not inspect.ismodule(value) and (getattr(value, "__module__", None) or "").startswith("oneflow."):
                names.add(f"{page}.{name}")
    return sorted(names, key=lambda name: (name.lower(), name))


@functools.cache
def entries_by_module():
    """Return {module: entries}, with every public name on the page of its module."""
    rows_of_name = {}
    for row_id, row in DIFFERENCES.items():
        for name in row["names"]:
            rows_of_name.setdefault(name, []).append(row_id)
    relations = relations_of_tables()
    owners = sorted({*table_modules(), *PAGES}, key=len, reverse=True)
    entries = {}
    for name in public_names(relations):
        page = next((owner for owner in owners if name.startswith(owner + ".")), "oneflow")
        target, owner = resolve(name)
        relation = relations.get(name) or relation_of_object(name, target, owner)
        if relation == OWN and (getattr(target, "__module__", None) or "").startswith(KERNEL_PACKAGES):
            relation = CUSTOM
        entries.setdefault(page, []).append(Entry(
            name[len(page) + 1:], signature_of(name, target), description_of(name, target), details_of(target),
            relation, tuple(rows_of_name.get(name, ())), *(torch_page(name, target, resolve) if relation == ALIAS else ())))
    return entries

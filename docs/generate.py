"""Write the generated pages: differences.md, environment.md, graph-options.md, api/*.md, images/speed.svg.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 when one of them is not current

The data are the package's tables and docstrings (docs/api_reference.py). The texts are docs/templates/.
"""
import re
import sys
from pathlib import Path

import jinja2

import oneflow
from oneflow import _env
from oneflow._tables.dialect import DIALECT, EXTENDED
from oneflow._tables.differences import SECTIONS
from oneflow._tables.graph_config import GRAPH_CONFIG
from oneflow._tables.knobs import KNOBS
from oneflow_autotest import config as autotest_config

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import api_reference

SPEED_MODELS = {  # model in performance.md: its name in the picture
    "MLP 3x64, 16": "MLP", "LSTM, 2 layers of 64, 2": "LSTM", "GRU, 2 layers of 64, 2": "GRU",
    "Mamba, 2 layers of 64, 2": "Mamba", "GPT-2-like, 4 layers of 128, 2": "GPT-2-like",
    "BERT-like, 4 layers of 128, 2": "BERT-like", "T5-like, 2 + 2 layers of 128, 2": "T5-like",
    "MobileNetV2, 2": "MobileNetV2", "ResNet-50, 2": "ResNet-50",
}


def table_cell(value):
    """Return a value as the text of a Markdown table cell."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def anchor(title):
    """Return the anchor that the site gives to a title."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


def template(file_name):
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(DOCS / "templates"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(cell=table_cell, sentence=api_reference.sentence, anchor=anchor)
    return environment.get_template(file_name)


def differences():
    return template("differences.md.j2").render(sections=SECTIONS, knobs=KNOBS, dialect=DIALECT, extended=EXTENDED)


def environment():
    return template("environment.md.j2").render(package=_env.VARIABLES, autotest=autotest_config.VARIABLES)


def graph_options():
    ignored = {}
    for name, (kind, why) in GRAPH_CONFIG.items():
        if kind == "ignored":
            ignored.setdefault(why, []).append(name)
    return template("graph-options.md.j2").render(options=GRAPH_CONFIG, ignored=ignored)


def speed_ratios():
    """Return (name, torch.compile's speed, inductor's speed) relative to eager, from the first table of performance.md."""
    ratios = {}
    for line in (DOCS / "performance.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        name = SPEED_MODELS.get(cells[0])
        if name and name not in ratios:
            eager, compiled, _aten, inductor = map(float, cells[1:5])
            ratios[name] = (eager / compiled, eager / inductor)
    return [(name, *pair) for name, pair in ratios.items()]


def speed_picture():
    return template("speed.svg.j2").render(ratios=speed_ratios())


def api_pages():
    """Return {module: page text} for every module of the API."""
    page = template("api-page.md.j2")
    return {module: page.render(module=module, entries=entries, summary=api_reference.module_summary(module))
            for module, entries in sorted(api_reference.entries_by_module().items())}


def pages():
    """Return {path below docs/: text} of all generated pages."""
    texts = {"differences.md": differences(), "environment.md": environment(),
             "graph-options.md": graph_options(), "images/speed.svg": speed_picture()}
    modules = api_reference.entries_by_module()
    texts.update({f"api/{module}.md": text for module, text in api_pages().items()})
    index = [(module, len(modules[module]), api_reference.module_summary(module)) for module in sorted(modules)]
    texts["api/README.md"] = template("api-index.md.j2").render(modules=index)
    return texts


def main(argv):
    if set(argv) - {"--check"}:
        print(__doc__.strip())
        return 0 if set(argv) <= {"-h", "--help"} else 2
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    state = "are not current" if "--check" in argv else "written"
    print(f"{len(stale)} pages {state}: {', '.join(stale) or 'none'} (oneflow {oneflow.__version__})")
    return 1 if stale and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

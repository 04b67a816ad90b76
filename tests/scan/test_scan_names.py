"""Names are resolved by scope; ambiguous names are left out."""

import textwrap

import pytest

from oneflow import scan


def names(source):
    return {use.name for use in scan.names_in(textwrap.dedent(source)).uses}


def test_names_are_found_with_their_lines():
    source = """
    import oneflow as flow
    from torch.nn import functional as F

    def f(x):
        import oneflow.nn.init as init
        init.zeros_(x)
        return flow.nn.no_such_layer(x) + F.relu(flow.ones(2).sum())

    raise SystemExit("importing this file would end the process")
    """
    lines = {use.name: use.line for use in scan.names_in(textwrap.dedent(source)).uses}
    assert lines["oneflow.nn.init.zeros_"] == 7
    assert (
        lines["oneflow.nn.no_such_layer"]
        == lines["torch.nn.functional.relu"]
        == lines["oneflow.ones().sum"]
        == 8
    )


@pytest.mark.parametrize(
    "source",
    [
        "def f(flow): flow.gone()",
        "flow = 3\nflow.gone()",
        "flow = load() if a else flow\nflow.gone()",
        "def f():\n    flow = load()\n    flow.gone()",
        "def f():\n    flow.gone()\n    flow = load()",
        "def f():\n    global flow\n    flow = load()\nflow.gone()",
        "[flow.gone for flow in range(3)]",
        "lambda flow: flow.gone",
        "for flow in range(3): flow.gone",
        "with open('x') as flow: flow.gone",
        "try: pass\nexcept ValueError as flow: flow.gone",
        "if a:\n    import numpy as flow\nflow.gone",
        "class A:\n    flow = 3\n    flow.gone",
        "class A:\n    def flow(self): self.flow.gone",
        "match a:\n    case flow: flow.gone",
        "(flow := load()).gone\nflow.gone",
        "def flow(): pass\nflow.gone",
        "def f(x: flow.Tensor): x.gone",
        "G = flow.nn\nG = 3\nG.gone",
    ],
)
def test_a_rebound_name_is_left_out(source):
    assert not [name for name in names("import oneflow as flow\n" + source) if name.endswith("gone")]


@pytest.mark.parametrize(
    "source",
    [
        "import oneflow as flow\nflow.gone",
        "def f():\n    import oneflow as flow\n    flow.gone",
        "def f(): flow.gone\nimport oneflow as flow",
        "import oneflow as flow\nclass A:\n    flow = 3\n    def f(self): flow.gone",
        "import oneflow as flow\nclass A:\n    flow = flow.gone",
        "import oneflow as flow\nflow.gone\nflow = 3",
        "import oneflow as flow\nflow.gone\ndel flow",
        "import oneflow as flow\ndef f(g=flow.gone): pass",
        "import oneflow as flow\n[x for x in flow.gone]",
        "import oneflow as flow\n[flow.gone for x in range(3)]",
        "flow = None\ntry:\n    import oneflow as flow\nexcept ImportError:\n    flow = None\nflow.gone",
        "try:\n    import oneflow as flow\nexcept ImportError:\n    import numpy as flow\nflow.gone",
        "try:\n    import oneflow as flow\nexcept ImportError:\n    class flow: pass\nflow.gone",
        "import oneflow\nF = oneflow\nF.gone",
        "import oneflow, numpy\nF, n = oneflow, numpy\nF.gone",
        "import importlib\nF = importlib.import_module('oneflow')\nF.gone",
        "import oneflow as flow\nmatch 1:\n    case 1: flow.gone",
    ],
)
def test_a_name_that_can_only_be_the_librarys_is_found(source):
    assert "oneflow.gone" in names(source)


def test_a_star_import_binds_the_names_of_the_module():
    assert "torch.nn.functional.relu" in names("from torch.nn.functional import *\nrelu(1)")
    assert "torch.nn.functional.relu" not in names(
        "from torch.nn.functional import *\nfrom mine import *\nrelu(1)"
    )
    assert "torch.nn.functional.relu" not in names(
        "from torch.nn.functional import *\ndef relu(x): pass\nrelu(1)"
    )


def test_alternatives_are_both_found():
    assert {"oneflow.nn.gone", "oneflow.fft.gone"} <= names(
        "import oneflow as flow\nF = flow.nn if a else flow.fft\nF.gone"
    )


@pytest.mark.parametrize(
    "name, state",
    [
        ("oneflow.abs", "works"),
        ("torch.nn.TransformerEncoder", "works"),
        ("oneflow.optim.AdamW", "differs"),
        ("oneflow.nn.no_such_layer", "missing"),
        ("oneflow.float32.is_floating_point", "works"),
        ("torch.no_module.at_all", "missing"),
        ("oneflow.ones().sum().gone", "missing"),
        ("oneflow.optim.SGD().zero_grad", "differs"),
        ("oneflow.nn.Linear().what_init_sets", "works"),
    ],
)
def test_judgement(name, state):
    assert scan.judge(name)[0] == state

"""`import torch` is redirected to oneflow, but only in user code."""

import pickle
import shlex
import subprocess
import sys
import textwrap

import pytest

import oneflow
import oneflow.mock_torch as mock


def test_with_block_redirects_and_ends():
    with mock.enable():
        import torch
        import torch.nn.functional as F
        from torch import nn

        assert torch is oneflow and F is oneflow.nn.functional and nn is oneflow.nn
        assert oneflow.get_dialect() == "torch"
    import torch

    assert torch.__name__ == "torch" and oneflow.get_dialect() == "oneflow"


def test_disable_inside_enable():
    with mock.enable():
        with mock.disable():
            import torch

            assert torch.__name__ == "torch"
        import torch

        assert torch is oneflow
    assert not mock.is_enabled()


def test_calls_switch_the_callers_globals():
    code = """
    import torch
    import oneflow.mock_torch as mock
    mock.enable()
    assert torch.__name__ == "oneflow", torch
    mock.disable()
    assert torch.__name__ == "torch", torch
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def run_program(code):
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True)


def test_disable_gives_every_global_name_its_torch_module_back():
    run_program("""
    import torch, torch.nn as nn, torch as alias, oneflow, oneflow.nn as flow_nn
    import oneflow.mock_torch as mock
    before = torch, nn, alias, oneflow, flow_nn
    now = lambda: (torch, nn, alias, oneflow, flow_nn)
    same = lambda: all(a is b for a, b in zip(now(), before))
    for _ in range(2):
        mock.enable()
        assert [m.__name__ for m in now()] == ["oneflow", "oneflow.nn", "oneflow", "oneflow", "oneflow.nn"], now()
        mock.disable()
        assert same(), now()
    mock.enable()
    nn = "mine"
    mock.disable()
    assert nn == "mine" and torch is before[0] and alias is before[2]
    """)  # noqa: E501


def test_blocks_nest_and_restore_the_global_torch():
    run_program("""
    import torch
    import oneflow.mock_torch as mock
    real = [torch]
    with mock.enable():
        assert torch is not real[0]
        with mock.enable(lazy=True):
            assert torch.__name__ == "oneflow"
            with mock.disable():
                assert torch is real[0] and __import__("torch", {}) is real[0]
        with mock.disable():
            assert torch is real[0]
        assert torch.__name__ == "oneflow" and torch is not real[0]
    assert torch is real[0]
    try:
        with mock.enable():
            raise KeyError
    except KeyError:
        assert torch is real[0] and not mock.is_enabled()
    mock.enable()
    with mock.disable():
        assert torch is real[0]
    assert torch is not real[0]
    mock.disable()
    assert torch is real[0]
    """)


def test_lazy_blocks_give_the_global_torch_placeholders():
    run_program("""
    import torch
    import oneflow.mock_torch as mock
    real = [torch]
    with mock.enable(lazy=True):
        assert not torch.no_such_name and torch.nn.Linear(2, 3)(torch.ones(1, 2)).shape == (1, 3)
        try:
            torch.no_such_name.deeper()
        except RuntimeError as error:
            assert "oneflow.no_such_name.deeper" in str(error)
        else:
            raise SystemExit("no error")
    assert torch is real[0]
    """)


def test_a_missing_name_raises_unless_lazy():
    with mock.enable():
        with pytest.raises(ImportError, match="noexist"):
            from torch import noexist
        with pytest.raises(ModuleNotFoundError, match="oneflow.noexist is not implemented"):
            import torch.noexist
    with mock.enable(lazy=True):
        import torch.noexist
        from torch import noexist

        with pytest.raises(RuntimeError, match="oneflow.noexist"):
            noexist()
        with pytest.raises(RuntimeError, match="oneflow.noexist.deeper"):
            torch.noexist.deeper(1)
        assert not noexist and [*noexist] == [] and "x" not in torch.noexist.deeper


def test_the_environment_can_turn_it_off(monkeypatch):
    monkeypatch.setenv("ONEFLOW_DISABLE_MOCK_TORCH", "1")
    with mock.enable():
        import torch

        assert torch.__name__ == "torch" and not mock.is_enabled() and oneflow.get_dialect() == "oneflow"
    monkeypatch.setenv("ONEFLOW_DISABLE_MOCK_TORCH", "0")
    with mock.enable():
        import torch

        assert torch is oneflow


def test_extra_dict_redirects_other_modules():
    import json

    with mock.enable(extra_dict={"xml.nothing": "json"}):
        from xml.nothing import loads

        assert loads is json.loads
    with pytest.raises(TypeError, match="extra_dict"):
        mock.enable(extra_dict=["json"])
    assert not mock.is_enabled()


def test_a_file_is_another_module_outside(tmp_path, monkeypatch):
    (tmp_path / "mock_example_file.py").write_text(
        "import torch\n\n\ndef f():\n    return torch.__package__\n\n\nclass C:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with mock.enable():
        from mock_example_file import C, f

        assert f() == "oneflow"
    # imported names stay until the program imports them again
    assert type(pickle.loads(pickle.dumps(C()))) is C
    from mock_example_file import f as outside

    assert outside() == "torch" and f() == "oneflow"
    with mock.enable():
        import mock_example_file

        assert mock_example_file.f is f
    import mock_example_file

    assert mock_example_file.f is outside


def test_a_relative_import_is_not_a_file_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "helper_of_both.py").write_text("import torch\nname = 'file'\n")
    package = tmp_path / "package_with_helper"
    package.mkdir()
    (package / "helper_of_both.py").write_text("name = 'package'\n")
    (package / "__init__.py").write_text("from .helper_of_both import name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with mock.enable():
        import helper_of_both
        import package_with_helper

        assert (helper_of_both.name, package_with_helper.name) == ("file", "package")


def test_torch_itself_keeps_the_real_torch():
    with mock.enable():
        import torch

        y = torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum()
        y.backward()  # lazy imports inside torch run under the mock
        torch.save({"a": torch.ones(1)}, __import__("io").BytesIO())
    assert sys.modules["torch"].__name__ == "torch"


def test_modules_torch_has_not_loaded_yet_are_found():
    code = """
    import sys, oneflow.mock_torch as mock
    mock.enable()
    import torch
    assert "torch.onnx" not in sys.modules and "torch.utils.model_zoo" not in sys.modules
    import torch.onnx
    from torch.utils.model_zoo import load_url, tqdm  # torchvision.datasets takes the second
    from torch.ao.quantization import get_default_qconfig
    import torch.distributed.optim as optim
    assert torch.onnx is sys.modules["torch.onnx"], torch.onnx
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_code_without_a_module_belongs_to_its_caller():
    with mock.enable():
        space = {}
        exec("import torch", space)
        assert space["torch"] is oneflow and eval("__import__('torch')") is oneflow
        theirs = {"__name__": "torch.somewhere", "space": {}}
        exec("exec('import torch', space)", theirs)  # as the guards of torch.compile do
        assert theirs["space"]["torch"].__name__ == "torch"


def test_torch_compile_under_the_mock():
    code = """
    import oneflow.mock_torch as mock
    mock.enable()
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    q = torch.randn(1, 1, 4, 4)
    assert torch.compile(lambda x: torch.relu(x) + torch.zeros(1), backend="eager", fullgraph=True)(q).equal(q.relu())
    assert torch.allclose(flex_attention(q, q, q), torch.nn.functional.scaled_dot_product_attention(q, q, q), atol=1e-6)
    """  # noqa: E501
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], check=True)


def test_a_module_that_lacks_a_package_names_the_package(tmp_path, monkeypatch):
    (tmp_path / "there_but_needs_more.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with mock.enable(extra_dict={"there": "there_but_needs_more"}):
        with pytest.raises(ModuleNotFoundError, match="^No module named 'not_installed_anywhere'$"):
            import there  # noqa: F401


def test_command_line_runs_a_script_or_a_module(tmp_path, monkeypatch):
    script = tmp_path / "prog.py"
    script.write_text("import torch, sys\nprint(torch.__name__, sys.argv[1:])\n")
    monkeypatch.setenv("PYTHONPATH", "/a folder")

    def run(*args):
        return subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=tmp_path)

    def mock(*args):
        return run("-m", "oneflow.mock_torch", *args)

    assert mock(str(script), "a").stdout.split() == ["oneflow", "['a']"]
    assert mock("--lazy", "-m", "prog", "a").stdout.split() == ["oneflow", "['a']"]
    usage = mock("--help")
    assert usage.returncode == 0 and "SCRIPT" in usage.stdout
    for args, why in (
        (["absent.py"], "there is no script absent.py"),
        (["-m", "absent.mod"], "there is no module absent.mod"),
        (["-m"], "-m needs the name of a module"),
        (["--lazy", "enable"], "enable takes no other arguments; --lazy and --verbose belong to a SCRIPT"),
    ):
        refused = mock(*args)
        assert (refused.returncode, refused.stderr) == (2, f"python -m oneflow.mock_torch: {why}\n")
    name, _, value = shlex.split(mock("enable").stdout)[1].partition("=")
    assert name == "PYTHONPATH" and value.endswith(":/a folder")
    monkeypatch.setenv("PYTHONPATH", value)
    assert run(str(script)).stdout.split() == ["oneflow", "[]"]
    assert run("-c", "import oneflow, torch; print(oneflow is torch)").stdout == "True\n"
    assert shlex.split(mock("disable").stdout) == ["export", "PYTHONPATH=/a folder"]


def test_main_pkg_limits_the_redirection(tmp_path, monkeypatch):
    for name in ("pkg_inside", "pkg_outside"):
        (tmp_path / f"{name}.py").write_text("import torch\nwho = torch.__name__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with mock.enable(main_pkg="pkg_inside"):
        import pkg_inside
        import pkg_outside
    assert (pkg_inside.who, pkg_outside.who) == ("oneflow", "torch")


def test_a_package_that_patches_torch_by_name_gets_torch(tmp_path, monkeypatch):
    (tmp_path / "pyro.py").write_text("import torch, torch.distributions\nassert torch.__name__ == 'torch'\n")
    (tmp_path / "uses_pyro.py").write_text("import torch, pyro\nwho = torch.__name__\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyro", raising=False)
    with mock.enable():
        import uses_pyro
    assert uses_pyro.who == "oneflow"


def test_patches_by_name_reach_the_code_under_test():
    from unittest.mock import patch

    def probe():
        import torch

        return torch.cuda.is_available(), torch.linalg.inv, torch.nn.Linear.forward

    with mock.enable():
        before = probe()
        for _ in range(2):  # the first use of a name, and a later one
            with (
                patch("torch.cuda.is_available", return_value="patched"),
                patch("torch.linalg.inv", new=1),
                patch("torch.nn.Linear.forward", new=2),
            ):
                assert probe() == ("patched", 1, 2)
            assert probe() == before
    with patch("torch.cuda.is_available", return_value="patched"):
        import torch

        assert torch.cuda.is_available() == "patched"


def test_the_dialect_chosen_before_comes_back():
    code = """
    import oneflow, oneflow.mock_torch as mock
    for before in ("torch", "oneflow-0.9", "oneflow"):
        oneflow.set_dialect(before)
        with mock.enable():
            assert oneflow.get_dialect() == "torch"
            with mock.disable():
                assert oneflow.get_dialect() == before
            assert oneflow.get_dialect() == "torch"
        assert oneflow.get_dialect() == before
        mock.enable(); mock.disable()
        assert oneflow.get_dialect() == before, oneflow.get_dialect()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_deep_paths_that_clients_import():
    from oneflow.mock_torch.mock_importer import _importer
    from oneflow.mock_torch.mock_utils import MockEnableDisableMixin

    assert not _importer.enable and _importer.delete_list == []
    with mock.enable():
        assert _importer.enable
    assert MockEnableDisableMixin.is_safe_module("colorsys")
    import colorsys

    MockEnableDisableMixin.hazard_list.append("colorsys")
    try:
        assert mock.DynamicMockModule.from_package("colorsys").rgb_to_hsv is colorsys.rgb_to_hsv
    finally:
        MockEnableDisableMixin.hazard_list.remove("colorsys")
    assert mock.DynamicMockModule.from_package("colorsys").rgb_to_hsv is not colorsys.rgb_to_hsv


def run_mocked(code):
    """Run a program under the mock; return what it prints. Nothing may be written to stderr."""
    program = "import oneflow.mock_torch; oneflow.mock_torch.enable()\n" + textwrap.dedent(code)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.returncode == 0 and out.stderr == "", out.stderr
    return out.stdout


def test_importing_a_submodule_keeps_the_function_of_its_name():
    """torch itself keeps it, for packages that the mock takes over and for packages of ours."""
    run_mocked("""
        import importlib, sys, types
        names = ("multiprocessing.spawn", "export.unflatten", "autograd.gradcheck", "distributed.rendezvous")
        names += ("nn.parallel.data_parallel", "nn.utils.spectral_norm")
        for path in names:
            parent, _, name = path.rpartition(".")
            module = importlib.import_module(f"oneflow.{path}")
            assert isinstance(module, types.ModuleType) and module is sys.modules[f"torch.{path}"]
            for package in ("oneflow", "torch"):
                function = getattr(sys.modules[f"{package}.{parent}"], name)
                assert callable(function) and not isinstance(function, types.ModuleType), (package, path)
            assert type(sys.modules[f"torch.{parent}"]) is types.ModuleType
    """)


def test_modules_of_settings_are_imported_and_patched():
    run_mocked("""
        import torch, torch._functorch.config
        from unittest import mock
        with mock.patch("torch._functorch.config.debug_partitioner", "patched"):
            assert torch._functorch.config.debug_partitioner == "patched"
        assert torch._functorch.config.debug_partitioner != "patched"
        assert torch._functorch.config.__spec__.name == "torch._functorch.config"
    """)


def test_a_patch_of_a_torch_function_reaches_torch_and_is_undone():
    run_mocked("""
        import sys, torch, torch.nn as nn, torch.nn.functional as F
        from unittest import mock
        real, x = sys.modules["torch"], torch.ones(1, 2)
        calls, linear, uniform_ = [], F.linear, nn.init.uniform_
        F.linear = lambda *args: calls.append(1) or linear(*args)
        nn.Linear(2, 2)(x)
        F.linear = linear
        nn.Linear(2, 2)(x)
        assert calls == [1] and real.nn.functional.linear is linear
        with mock.patch("torch.nn.functional.dropout", side_effect=lambda x, *args: x * 0 + 7):
            assert nn.Dropout(0.5)(x).tolist() == [[7, 7]]
        with mock.patch.object(torch, "randperm", lambda n, **options: torch.arange(n)):
            assert list(torch.utils.data.RandomSampler("abc")) == [0, 1, 2]
        assert real.randperm is torch.randperm
        randperm = torch.randperm
        del torch.randperm
        assert not hasattr(torch, "randperm") and not hasattr(real, "randperm")
        torch.randperm = randperm
        assert real.randperm is randperm
        torch.a_name_of_the_user = 1
        assert not hasattr(real, "a_name_of_the_user")
        load, theirs = torch.load, real.load
        torch.load = "patched"
        assert real.load == "patched"
        torch.load = load
        assert real.load is theirs and torch.load is load
    """)


@pytest.mark.parametrize("weights_only", [None, True, False])
def test_wrapper_of_save_and_load_is_called_once(weights_only):
    """`save` and `load` do not call torch's names, which a write under the mock replaces, too."""
    run_mocked(f"""
        import io
        calls, save, load = [], torch.save, torch.load
        torch.save = lambda *args, **options: calls.append("save") or save(*args, **options)
        torch.load = lambda *args, **options: calls.append("load") or load(*args, **options)
        file = io.BytesIO()
        torch.save(torch.ones(2), file)
        file.seek(0)
        assert torch.load(file, weights_only={weights_only}).tolist() == [1, 1]
        assert calls == ["save", "load"], calls
    """)


def test_a_patch_through_a_lazy_mock_reaches_torch():
    with mock.enable(lazy=True):
        import torch.nn.functional as F

        dropout = F.dropout
        F.dropout = "patched"
        reached = sys.modules["torch.nn.functional"].dropout
        F.dropout = dropout
    assert reached == "patched" and sys.modules["torch.nn.functional"].dropout is dropout


def test_this_package_leaves_torchs_names_alone():
    """Job functions, dialects and global_mode bind names of our modules. Only users' writes reach torch."""
    run_mocked("""
        import numpy, sys, oneflow, oneflow as flow, torch, torch.nn, torch.nn.functional, torch.optim
        import torch._dynamo  # it wraps torch.manual_seed
        import oneflow.compatible.single_client as single
        import oneflow.compatible.single_client.typing as typing
        from oneflow.compatible.single_client._functions.names import legacy_forms
        from oneflow.utils.global_view import global_mode
        vars(flow), vars(flow.nn)

        def names():
            modules = {name: sys.modules["torch" + name] for name in ("", ".nn", ".nn.functional", ".optim")}
            return {(m, n): v for m, module in modules.items() for n, v in vars(module).items() if n[0] != "_"}

        def changed():
            now = names()
            return {key for key, value in before.items() if now.get(key) is not value}

        flow.set_dialect("oneflow-0.9")
        flow.set_dialect("torch")
        before = names()
        for dialect in ("torch", "oneflow", "oneflow-0.9"):
            flow.set_dialect(dialect)
            with legacy_forms():
                assert not changed()
            with global_mode(True, flow.placement("cpu", [0]), flow.sbp.broadcast):
                assert not changed()
            assert not changed()

            @single.global_function()
            def job(x: typing.Numpy.Placeholder((2, 3))) -> typing.Numpy:
                return single.squeeze(single.reshape(flow.transpose(x, [1, 0]), [1, 6]))

            assert job(numpy.arange(6.0, dtype="float32").reshape(2, 3)).tolist() == [0, 3, 1, 4, 2, 5]
            assert not changed()
    """)  # noqa: E501


def test_a_patch_of_a_name_of_oneflow_does_not_reach_torch():
    import oneflow

    sort, theirs = oneflow.sort, sys.modules["torch"].sort
    oneflow.sort = "patched"
    try:
        assert sys.modules["torch"].sort is theirs
    finally:
        oneflow.sort = sort


def test_the_dict_of_a_module_has_torchs_names():
    run_mocked("""
        import sys, types, torch, torch.nn.init, torch.optim
        for path in ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.nn.init"):
            theirs, ours = vars(sys.modules[path]), vars(sys.modules["oneflow" + path[5:]])
            missing = {n for n, v in theirs.items() if n not in ours and not n.startswith("_")}
            assert missing <= {"Storage"}, missing
            modules = {n for n, v in theirs.items() if isinstance(v, types.ModuleType) and not n.startswith("_")}
            assert all(ours[n] is getattr(sys.modules[ours["__name__"]], n) for n in modules)
            functions = [n for n, v in theirs.items() if isinstance(v, types.FunctionType | type) and n in ours]
            assert path == "torch" or [n for n in functions if ours[n] is not theirs[n]] == []
    """)  # noqa: E501


def test_pickles_of_torchs_functions_name_torch():
    out = run_mocked("""
        import pickle, torch
        for name in ("zeros", "randn", "arange", "full", "linspace", "load", "save"):
            data = pickle.dumps(getattr(torch, name))
            assert b"oneflow" not in data and pickle.loads(data).__name__ == name
        print(pickle.dumps(torch.load).hex())
    """)
    read = "import pickle, torch; assert pickle.loads(bytes.fromhex(%r)) is torch.load" % out.strip()
    subprocess.run([sys.executable, "-c", read], check=True)


def test_a_caller_without_a_global_name_torch_gets_one():
    """OneFlow 0.9 binds it, and its tests read it."""
    script = """
        import oneflow.mock_torch as mock

        def packages():
            import torch.version
            return torch.__package__

        def binds_locally():
            with mock.enable():
                import torch
            with mock.disable():
                import torch

        binds_locally()
        with mock.enable():
            print(torch.__package__, torch.nn.__package__)
            with mock.disable():
                print(torch.__package__)
            print(torch.__package__, packages())
        print(torch.__package__, packages())
        mock.enable()
        print(torch.__package__)
        mock.disable()
        print(torch.__package__)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.stdout.split() == [
        *("oneflow", "oneflow.nn", "torch", "oneflow", "oneflow", "torch", "torch", "oneflow", "torch")
    ], done.stderr


def test_checkpoint_is_torchs_under_the_mock():
    """torch's warns if use_reentrant is left out, and re-enters autograd. OneFlow's does neither."""
    with mock.enable():
        from torch.utils.checkpoint import checkpoint
    with mock.disable():
        from torch.utils.checkpoint import checkpoint as torchs
    from oneflow.utils.checkpoint import checkpoint as ours

    assert checkpoint is torchs is not ours


def test_the_job_function_api_is_no_part_of_the_mock():
    assert callable(oneflow.losses.add_loss)
    with mock.enable():
        import torch

        names = "copy", "dynamic_reshape", "get_variable", "matmul_v2"
        assert not any(hasattr(torch, name) for name in names)


def test_names_that_torch_binds_anew_are_looked_up_at_each_use():
    run_mocked("""
        import torch
        torch.Storage
        torch.set_default_dtype(torch.float64)
        assert torch.Storage is torch.DoubleStorage
    """)


def test_a_star_import_binds_what_torchs_does():
    run_mocked("""
        import builtins, sys
        names = {}
        exec("from torch import *", names)
        assert names.get("slice", builtins.slice) is builtins.slice
        assert set(sys.modules["torch"].__all__) == set(names) - {"__builtins__"}
    """)


def test_a_warning_of_a_creation_function_names_the_callers_line():
    run_mocked("""
        import warnings, torch
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.arange(0, 3, out=torch.empty(5))
        assert [w.filename for w in caught] == ["<string>"], caught[0].filename
    """)


def test_nothing_is_printed_at_exit_after_a_worker(tmp_path):
    script = tmp_path / "loads.py"
    script.write_text(
        "import oneflow.mock_torch; oneflow.mock_torch.enable()\n"
        "import torch\n"
        "if __name__ == '__main__':\n"
        "    list(torch.utils.data.DataLoader(torch.arange(4), num_workers=1))\n"
    )
    out = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert out.returncode == 0 and out.stderr == "", out.stderr


def test_the_version_compares_with_tuples_in_every_dialect():
    import oneflow

    assert oneflow.__version__ >= (0, 9) and not oneflow.__version__ >= (1, 8)
    assert isinstance(oneflow.__version__, str)


def test_imports_are_pythons_own_where_the_mock_is_off():
    code = (
        "import builtins, pkgutil; own = builtins.__import__, pkgutil.resolve_name\n"
        "import oneflow.mock_torch as mock\n"
        "is_own = lambda: (builtins.__import__, pkgutil.resolve_name) == own\n"
        "states = [is_own()]; mock.enable(); states.append(is_own())\n"
        "with mock.disable(): states.append(is_own())\n"
        "states.append(is_own()); mock.disable(); states.append(is_own())\n"
        "with mock.enable(): states.append(is_own())\n"
        "states.append(is_own()); print(states)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str([True, False, True, False, True, False, True])

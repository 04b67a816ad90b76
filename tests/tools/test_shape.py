"""No ring of imports, packages of the engine that are entered through their seams, and few types Any."""

import pytest
import shape
from shape import any_ceilings, any_parameters, entered_modules, imports_by_module, modules, rings, seam

FILES = modules()
EDGES = imports_by_module(FILES)
ENGINE = "oneflow_compat._graph"
SEAMS = {package: names for package in FILES if (names := seam(package, FILES)) is not None}


def test_there_is_no_import_ring():
    assert rings(EDGES) == []


def test_a_ring_of_imports_for_type_checkers_counts(tmp_path):
    files = {name: tmp_path / f"{name.rpartition('.')[2]}.py" for name in ("package.a", "package.b")}
    files["package.a"].write_text("from .b import f\n")
    files["package.b"].write_text("if TYPE_CHECKING:\n    from .a import A\n")
    assert rings(imports_by_module(files)) == [["package.a", "package.b"]]


@pytest.mark.parametrize("package", SEAMS)
def test_other_packages_enter_a_package_through_its_seam(package):
    """`SEAM` in the package's `__init__.py` lists the modules that others import: all of them, and no
    others.
    """
    assert entered_modules(package, EDGES) == SEAMS[package]


def test_front_ends_enter_the_engine_through_its_init():
    assert entered_modules(ENGINE, EDGES) == set()


def test_parameters_of_type_any_do_not_increase():
    """Give the new parameters a type. `python tests/tools/shape.py --any` counts them."""
    ceilings = any_ceilings()
    counts = {package: bare for package, (bare, _) in any_parameters(FILES).items()}
    above = {p: (count, ceilings.get(p, 0)) for p, count in counts.items() if count > ceilings.get(p, 0)}
    assert not above, f"{{package: (parameters of type Any, ceiling)}}: {above}"


def test_only_a_parameter_whose_whole_type_is_any_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(shape, "ROOT", tmp_path)
    file = tmp_path / "package" / "a.py"
    file.parent.mkdir()
    file.write_text("def f(self, a: Any, b: int, *args: Any, c: list[Any] = (), d: Any = None): ...\n")
    assert any_parameters({"package.a": file}) == {"package": (2, 4)}

"""No module of the package or of AutoTest is in an import ring."""

from shape import imports_by_module, modules, rings


def test_there_is_no_import_ring():
    assert rings(imports_by_module(modules())) == []


def test_a_ring_of_imports_for_type_checkers_counts(tmp_path):
    files = {name: tmp_path / f"{name.rpartition('.')[2]}.py" for name in ("package.a", "package.b")}
    files["package.a"].write_text("from .b import f\n")
    files["package.b"].write_text("if TYPE_CHECKING:\n    from .a import A\n")
    assert rings(imports_by_module(files)) == [["package.a", "package.b"]]

"""Modules that are swapped or reloaded between two calls: the graph follows the change, or a warning named
it.
"""

import importlib
import os
import sys
import types

from hostile_cases import verdict


def test_swapped_module_of_an_import_statement_is_followed():
    imported = types.ModuleType("hostile_mod")
    imported.K = 2.0
    replacement = types.ModuleType("hostile_mod")
    replacement.K = 3.0
    sys.modules["hostile_mod"] = imported

    def build(x):
        import hostile_mod

        return x * hostile_mod.K

    def change():
        sys.modules.__setitem__("hostile_mod", replacement)

    assert verdict(build, change) == "followed"


def test_swapped_module_of_import_module_is_followed():
    imported = types.ModuleType("hostile_mod3")
    imported.K = 2.0
    replacement = types.ModuleType("hostile_mod3")
    replacement.K = 3.0
    sys.modules["hostile_mod3"] = imported

    def build(x):
        return x * importlib.import_module("hostile_mod3").K

    def change():
        sys.modules.__setitem__("hostile_mod3", replacement)

    assert verdict(build, change) == "followed"


def test_reloaded_module_is_followed(tmp_path, monkeypatch):
    folder = tmp_path
    monkeypatch.syspath_prepend(folder)
    path = os.path.join(folder, "hostile_rel.py")
    open(path, "w").write("K=2.0\ndef f(): return K\n")
    import hostile_rel

    def change():
        open(path, "w").write("K=333.0\ndef f(): return K*1.0\n")
        importlib.invalidate_caches()
        importlib.reload(hostile_rel)

    def build(x):
        return x * hostile_rel.f()

    assert verdict(build, change) == "followed"


def test_function_imported_from_a_reloaded_module_is_followed(tmp_path, monkeypatch):
    folder = tmp_path
    monkeypatch.syspath_prepend(folder)
    path = os.path.join(folder, "hostile_rel2.py")
    open(path, "w").write("K=2.0\ndef f(): return K\n")
    import hostile_rel2
    from hostile_rel2 import f

    def change():
        open(path, "w").write("K=333.0\ndef f(): return K*1.0\n")
        importlib.invalidate_caches()
        importlib.reload(hostile_rel2)

    def build(x):
        return x * f()

    assert verdict(build, change) == "followed"

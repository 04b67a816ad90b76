"""docs/files-and-data.md: its code blocks run, in order, in an empty folder."""
import pathlib
import re
import sys
import types

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "files-and-data.md"


def test_code_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("files_and_data_page")  # a module, so that its class can be pickled
    monkeypatch.setitem(sys.modules, module.__name__, module)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), module.__dict__)

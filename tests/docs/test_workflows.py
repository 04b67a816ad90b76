"""The workflows of .github name make targets, files and jobs that exist, and their scripts are valid shell.

The workflows do not run here, so a renamed target or file would otherwise be noticed only at the next
release.
"""

import itertools
import re
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yml")}
JOBS = {(file, name): job for file, workflow in WORKFLOWS.items() for name, job in workflow["jobs"].items()}
STEPS = [(file, name, step) for (file, name), job in JOBS.items() for step in job.get("steps", ())]
SCRIPTS = [(file, name, step["run"]) for file, name, step in STEPS if "run" in step]
MAKE_TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def matrix_combinations(matrix):
    """Return the combinations of a matrix without `include` and `exclude`, as dicts."""
    axes = {axis: values for axis, values in matrix.items() if axis not in ("include", "exclude")}
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def test_make_targets_of_scripts_exist():
    targets = [
        word
        for _, _, script in SCRIPTS
        for arguments in re.findall(r"\bmake ([^\n]*)", script)
        for word in arguments.split()
        if "=" not in word
    ]
    assert len(targets) >= 5 and set(targets) <= MAKE_TARGETS


def test_files_of_scripts_exist():
    named = {
        path
        for _, _, script in SCRIPTS
        for path in re.findall(
            r"(?:[\w-]+/)+[\w.-]+\.(?:py|md|txt|toml)", script.replace("$GITHUB_WORKSPACE/", " ")
        )
    }
    assert "docs/examples/first_graph.py" in named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_jobs_that_a_job_needs_or_calls_exist():
    for (file, name), job in JOBS.items():
        needs = job.get("needs", [])
        needs = [needs] if isinstance(needs, str) else needs
        assert set(needs) <= set(WORKFLOWS[file]["jobs"]), name
        if "uses" in job:
            called = WORKFLOWS[Path(job["uses"]).name]
            assert "workflow_call" in called[True], name  # YAML reads the key `on` as True


def test_each_exclusion_of_a_matrix_excludes_something():
    for name, job in JOBS.items():
        matrix = job.get("strategy", {}).get("matrix", {})
        for excluded in matrix.get("exclude", ()):
            assert [c for c in matrix_combinations(matrix) if excluded.items() <= c.items()], (name, excluded)


def test_every_supported_python_is_tested():
    """The classifiers of pyproject.toml name the Pythons that are claimed."""
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert claimed and set(claimed) <= set(JOBS["ci.yml", "test"]["strategy"]["matrix"]["python"])


@pytest.mark.parametrize("script", [script for _, _, script in SCRIPTS])
def test_scripts_are_valid_shell(script):
    without_expressions = re.sub(r"\$\{\{.*?\}\}", "value", script)
    checked = subprocess.run(["bash", "-n"], input=without_expressions, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_jobs_get_no_more_permissions_than_they_name():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
    checkouts = [step for _, _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts and all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_release_checks_read_files_that_have_what_they_look_for():
    """The script of release.yml compares the tag with these two lines."""
    (script,) = [s for file, name, s in SCRIPTS if (file, name) == ("release.yml", "check")]
    assert "__version__ = " in script and "oneflow_compat/version.py" in script
    assert re.search(r'^__version__ = "\d', (ROOT / "oneflow_compat/version.py").read_text(), re.M)
    assert re.search(r"^## \[", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)

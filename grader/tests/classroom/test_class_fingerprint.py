"""Which changes of the grader make a class be graded again: of what decides a result, and of nothing else."""

import ast
import importlib.util
from pathlib import Path

from grader.classroom.grading import fingerprint
from grader.course import catalog
from grader.tests.helpers.course import ROOT

GRADES = (
    "grader.judge.run",
    "grader.judge.correctness",
    "grader.worker.worker",
    "grader.worker.session",
    "grader.grading.pytest_run",
    "grader.grading.plugin",
)


def imported(path: Path) -> set[str]:
    """The grader's modules that a file imports anywhere in it, their packages too."""
    found = set()
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return {one for one in found if one.split(".")[0] == "grader" and _is_module(one)}


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_nothing_that_grades_lies_in_a_folder_that_is_left_out():
    reached, open_ones = set(), set(GRADES)
    for entry in (*catalog.find(), *catalog.capstone()):
        open_ones |= imported(entry.lab_file)
    while open_ones:
        module = open_ones.pop()
        reached.add(module)
        open_ones |= imported(Path(importlib.util.find_spec(module).origin)) - reached
    assert {"grader.judge.comparison", "grader.judge.statistics", "grader.measure.survey"} < reached
    paths = [f"{one.removeprefix('grader.').replace('.', '/')}/" for one in reached]
    left_out = tuple(f"{name}/" for name in fingerprint.NOT_GRADING)
    assert [path for path in paths if path.startswith(left_out)] == []


def test_every_folder_that_is_left_out_is_there():
    assert all((ROOT / "grader" / name).is_dir() for name in fingerprint.NOT_GRADING)

"""Which changes of the grader make a class be graded again: of what decides a result, and of nothing else."""

import ast
import importlib.util
from pathlib import Path

from conftest import ROOT

from grader import catalog
from grader.batch import fingerprint

GRADES = (
    "grader.run",
    "grader.judge",
    "grader.worker",
    "grader.session",
    "grader.graded_pytest",
    "grader.plugin",
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
    assert {"grader.compare", "grader.timing", "grader.survey"} < reached
    folders = {one.split(".")[1] for one in reached if one.count(".")}
    assert not folders & set(fingerprint.NOT_GRADING)


def test_every_folder_that_is_left_out_is_there():
    assert all((ROOT / "grader" / name).is_dir() for name in fingerprint.NOT_GRADING)

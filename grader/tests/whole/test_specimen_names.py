"""Names of the grader in cheats and faults must exist: one that names a missing module attacks nothing."""

import ast
import importlib
import re

import pytest

from grader.tests.helpers.course import ROOT
from grader.tests.whole.everyday import CORPORA

DOTTED = re.compile(r"(?<![\w./])grader(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(r"(?<![\w./])grader/[\w/*.]+")
FILES = sorted(
    file
    for specimen in (*CORPORA["cheats"], *CORPORA["faults"])
    for file in (specimen.path.rglob("*") if specimen.path.is_dir() else [specimen.path])
    if file.is_file()
)


def exists(dotted: str) -> bool:
    """Whether it is a module, or an attribute of one."""
    module, _, attribute = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
    except ImportError:
        return bool(module) and exists(module) and hasattr(importlib.import_module(module), attribute)
    return True


def imported(text: str):
    """The names of the grader that import statements bind, in full."""
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):  # of a fault that is no Python
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "grader":
            yield from (f"{node.module}.{one.name}" for one in node.names)


def missing(text: str) -> list[str]:
    """The modules, attributes and paths of the grader that a text names, and that are not there."""
    names = {*DOTTED.findall(text), *imported(text)}
    paths = set(PATH.findall(text))
    return sorted(
        [name for name in names if not exists(name)] + [path for path in paths if not [*ROOT.glob(path)]]
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from grader.course.spec import Case\n'grader/judge/*.py'", []),
        ("from grader.course.spec import Cases", ["grader.course.spec.Cases"]),
        ("from grader import compare", ["grader.compare"]),
        ("call('grader.judge.comparison.inspect')", ["grader.judge.comparison.inspect"]),
        ("open('grader/compare.py')", ["grader/compare.py"]),
    ],
)
def test_a_name_that_is_not_there_is_found(text, found):
    assert missing(text) == found


def test_every_name_of_the_grader_in_a_specimen_is_there():
    texts = {file: file.read_bytes().decode("utf-8", "replace") for file in FILES}
    assert sum("grader" in text for text in texts.values()) >= 8, "no specimen names the grader"
    found = {str(file.relative_to(ROOT)): missing(text) for file, text in texts.items()}
    assert {file: names for file, names in found.items() if names} == {}


def test_every_file_of_a_planted_grader_has_the_place_of_a_real_one():
    planted = [file for file in FILES if "grader" in file.parent.parts[len(ROOT.parts) + 3 :]]
    assert planted
    for file in planted:
        place = file.parts[file.parts.index("grader", len(ROOT.parts) + 1) :]
        assert ROOT.joinpath(*place).is_file(), file

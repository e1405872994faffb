"""A TODO whose lines are written is told from one that is not begun."""

import re

import pytest

from grader.course import catalog
from grader.course.submission import Submission
from grader.course.todos import open_errors, open_todos, regions_in
from grader.tests.helpers.commands import python

LAB1 = catalog.ROOT / "labs" / "lab1_elementwise_add" / "elementwise_add.py"
SKELETONS = sorted((catalog.ROOT / "grader" / "course" / "skeletons").rglob("*.*"))
SECOND = '    tl.static_assert(False, "TODO 2: load both blocks, add, store the sum")\n'
OWN = "    x = tl.load(x_ptr + offs)\n"


def skeleton_of(path):
    found = [one for one in SKELETONS if one.name == path.name]
    return found[0].read_text()


@pytest.mark.parametrize(
    "lines", [OWN + SECOND, SECOND + OWN, SECOND.replace("(False", "(\n        False") + OWN]
)
def test_a_placeholder_beside_ones_own_lines_is_to_be_deleted(lines):
    """Only the launch that failed said so, as if nothing were written."""
    source = skeleton_of(LAB1).replace(SECOND, lines)
    first, second, third = open_todos(source)
    assert (
        second.text
        == f"load both blocks, add, store the sum; your lines are there: delete line {second.line}"
    )
    assert "static_assert" in source.split("\n")[second.line - 1]
    assert "your lines" not in first.text + third.text


def test_a_placeholder_below_a_comment_is_a_task():
    source = skeleton_of(LAB1).replace(SECOND, "    # I do not know yet\n" + SECOND)
    assert "your lines" not in open_todos(source)[1].text


def test_an_error_directive_below_ones_own_lines_is_to_be_deleted():
    region = '// BEGIN TODO 1: add (about 1 line)\n{}#error "TODO 1: add"\n// END TODO 1\n'
    assert [one.text for one in open_errors(region.format(""))] == ["add"]
    assert [one.text for one in open_errors(region.format("x += 1;\n"))] == [
        "add; your lines are there: delete line 3"
    ]


@pytest.mark.parametrize("path", SKELETONS, ids=lambda path: path.name)
def test_in_a_skeleton_nothing_is_written(path):
    submission = Submission.read(path)
    assert submission.open_todos
    assert regions_in(submission.text) == {one.number for one in submission.open_todos}
    assert not any("your lines" in one.text for one in submission.open_todos)


def test_todo_says_how_many_are_done(tmp_path):
    file = tmp_path / LAB1.relative_to(catalog.ROOT / "labs")
    file.parent.mkdir()
    file.write_text(skeleton_of(LAB1).replace(SECOND, OWN))
    done = python("-m", "grader", "todo", "--lab", "1", "--from", tmp_path)
    assert f"{file}: 1 of 3 done" in done.stdout, done.stdout
    assert re.findall(r"TODO (\d):", done.stdout) == ["1", "3"]

"""What a look at a student's file alone decides, before anything runs."""

import re
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.course.todos import open_todos
from grader.screen.file_check import check

LABS = {entry.number: entry for entry in catalog.find()}
ADD = LABS[1].lab.exercises[0]
SKELETON = (LABS[1].folder / ADD.file).read_text("utf-8")
SOLUTION = (catalog.ROOT / "solutions" / LABS[1].folder.name / ADD.file).read_text("utf-8")


@pytest.fixture
def look(tmp_path):
    """What the check says of these bytes."""

    def look(source: bytes | str):
        file = tmp_path / ADD.file
        file.write_bytes(source if isinstance(source, bytes) else source.encode())
        return check(Submission.read(file), ADD)

    return look


def test_missing_file_is_not_started(tmp_path):
    outcome = check(Submission.read(tmp_path / ADD.file), ADD)
    assert (outcome.verdict, outcome.where) == (Verdict.NOT_STARTED, "elementwise_add.py is missing")


@pytest.mark.parametrize("source", ["", "\n", " \n\t\r\n", "\ufeff", "\ufeff\n"], ids=ascii)
def test_file_without_text_is_not_started(look, source):
    assert (look(source).verdict, look(source).where) == (
        Verdict.NOT_STARTED,
        "elementwise_add.py is empty",
    )


def test_folder_in_the_place_of_the_file_is_refused_at_the_intake(tmp_path):
    (tmp_path / ADD.file).mkdir()
    outcome = check(Submission.read(tmp_path / ADD.file), ADD)
    assert (outcome.verdict, outcome.reason) == (Verdict.POLICY, "INTAKE")
    assert "is a folder" in outcome.where


def test_finished_file_is_ready_to_run(look):
    assert look(SOLUTION) is None


def test_byte_order_mark_and_crlf_are_fine(look):
    assert look(b"\xef\xbb\xbf" + SOLUTION.replace("\n", "\r\n").encode()) is None


def test_byte_order_mark_and_crlf_hide_no_open_todo(look):
    outcome = look(b"\xef\xbb\xbf" + SKELETON.replace("\n", "\r\n").encode())
    assert outcome.verdict is Verdict.NOT_STARTED
    assert [todo.number for todo in outcome.open_todos] == [1, 2, 3]


@pytest.mark.parametrize(
    ("source", "byte"),
    [("# größe\n".encode("latin-1"), 4), ("x = 1\n".encode("utf-16"), 0)],
    ids=["latin-1", "utf-16"],
)
def test_file_in_another_encoding_is_a_compile_error_that_names_the_byte(look, source, byte):
    outcome = look(source)
    assert outcome.verdict is Verdict.COMPILE_ERROR
    assert outcome.where == f"elementwise_add.py is not UTF-8 text (byte {byte})"


def test_syntax_error_is_shown_with_its_line(look):
    outcome = look("import torch\n\ndef f(x:\n    return x\n")
    assert outcome.verdict is Verdict.COMPILE_ERROR
    assert outcome.where.startswith("SyntaxError: ")
    assert outcome.frames[0].line == 3
    assert outcome.frames[0].code == "def f(x:"


def test_wrong_indentation_is_shown_with_its_line(look):
    outcome = look("def f(x):\n    y = x\n      return y\n")
    assert outcome.verdict is Verdict.COMPILE_ERROR
    assert outcome.where == "IndentationError: unexpected indent"
    assert outcome.frames[0].line == 3


def test_null_byte_is_a_compile_error(look):
    outcome = look(SOLUTION + "x = '\0'\n")
    assert outcome.verdict is Verdict.COMPILE_ERROR
    assert "null byte" in outcome.where


def test_syntax_error_comes_before_open_todos(look):
    assert look(SKELETON + "\nx = (\n").verdict is Verdict.COMPILE_ERROR


@pytest.mark.parametrize(
    "source", ["x = " + "-" * 100_000 + "1\n", "x = 1" + "+1" * 50_000 + "\n"], ids=["signs", "sums"]
)
def test_expression_nested_too_deeply_for_the_compiler_costs_the_file_and_not_the_run(look, source):
    outcome = look(source)
    # A compiler of another release may well take the sums.
    assert outcome is None or outcome.verdict is Verdict.COMPILE_ERROR


def test_warning_of_the_compiler_is_no_error(look):
    assert look(SOLUTION + "PATTERN = '\\d'\n") is None


@pytest.mark.parametrize("entry", LABS.values(), ids=lambda entry: entry.folder.name)
def test_untouched_skeleton_is_not_started_and_lists_every_todo_of_the_file(entry):
    for exercise in entry.lab.exercises:
        file = Path(catalog.ROOT, "labs", entry.folder.name, exercise.file)
        every = open_todos(file.read_text("utf-8"))
        assert every, f"{file.name} is no skeleton"
        outcome = check(Submission.read(file), exercise)
        assert outcome.verdict is Verdict.NOT_STARTED
        assert [(todo.number, todo.text, todo.line) for todo in outcome.open_todos] == [
            (todo.number, todo.text, todo.line) for todo in every
        ]
        assert outcome.share == 0.0


@pytest.mark.parametrize("entry", LABS.values(), ids=lambda entry: entry.folder.name)
def test_solution_is_ready_to_run(entry):
    for exercise in entry.lab.exercises:
        assert (
            check(Submission.read(entry.submission(catalog.ROOT / "solutions", exercise)), exercise) is None
        )


def region(text, number):
    """The lines from one BEGIN mark to its END mark."""
    (found,) = re.findall(rf"# BEGIN TODO {number}:.*# END TODO {number}$", text, re.DOTALL | re.MULTILINE)
    return found


def test_file_with_open_todos_in_kernels_alone_must_run(look):
    # A placeholder in a kernel may lie in a branch that no launch compiles.
    text = SKELETON.replace(region(SKELETON, 3), region(SOLUTION, 3))
    assert [todo.number for todo in open_todos(text)] == [1, 2]
    assert look(text) is None


def test_file_with_an_open_todo_in_host_code_is_not_started(look):
    outcome = look(SOLUTION.replace(region(SOLUTION, 3), region(SKELETON, 3)))
    assert outcome.verdict is Verdict.NOT_STARTED
    assert [todo.number for todo in outcome.open_todos] == [3]


def test_open_todo_of_one_exercise_does_not_hold_up_another_in_the_same_file(tmp_path):
    entry = LABS[2]
    asked = {exercise.name: exercise for exercise in entry.lab.exercises}
    texts = [
        entry.submission(catalog.ROOT / tree, asked["softmax_forward"]).read_text("utf-8")
        for tree in ("solutions", "labs")
    ]
    file = tmp_path / "online_softmax.py"
    file.write_text(texts[0].replace(region(texts[0], 5), region(texts[1], 5)), "utf-8")
    assert check(Submission.read(file), asked["softmax_forward"]) is None
    assert check(Submission.read(file), asked["softmax_backward"]).verdict is Verdict.NOT_STARTED

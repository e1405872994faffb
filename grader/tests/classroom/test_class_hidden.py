"""Hidden cases are built, and the course's solution is graded on them, before anybody is."""

import dataclasses
import io
import shutil

import pytest
from rich.console import Console

from grader.classroom import records
from grader.classroom.grading import hidden_check, run
from grader.classroom.grading.run import Asked, AskedError, grade_class
from grader.classroom.records import State, TaskRecord
from grader.classroom.run_folder import RunFolder
from grader.course import catalog, hidden_cases
from grader.tests.classroom.one_by_one import OneByOne
from grader.tests.helpers.course import ROOT

LAB = "lab1_elementwise_add"
GOOD = '[[case]]\nexercise = "elementwise_add"\nparams = { n = 5003 }\n'
SOFTMAX = '[[case]]\nexercise = "softmax_forward"\nparams = { rows = 3, cols = 70 }\ndtype = "fp16"\n'


def write(path, text):
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("wrong", "line", "words"),
    [
        ("params = { m = 5003 }", 5, "KeyError: 'n'; params has m, the exercise's own cases have n"),
        ("params = { n = -3 }", 5, "hidden 2 of elementwise_add: RuntimeError: "),
        ('params = { n = "many" }', 5, "hidden 2 of elementwise_add: TypeError: "),
        ("params = { n = 3 }\nlayouts = { z = { pad = 1 } }", 5, "layouts: the exercise has no tensor z"),
        ("params = { n = 3, m = 5 }", 5, "hidden 2 of elementwise_add: the exercise reads no m"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_built_is_named_with_its_line(tmp_path, wrong, line, words):
    path = write(
        tmp_path / "cases.toml", f'{GOOD}# another\n[[case]]\nexercise = "elementwise_add"\n{wrong}\n'
    )
    (found,) = hidden_check.unbuilt(path)
    assert found.startswith(f"{path}:{line}: ")
    assert words in found


def test_cases_that_can_be_built_are_all_right_also_with_paddings_and_for_a_gpu(tmp_path):
    text = f"{GOOD}{SOFTMAX}layouts = {{ x = {{ pad = 7 }} }}\n{GOOD}gpu_only = true\n"
    path = write(tmp_path / "cases.toml", text)
    assert hidden_check.unbuilt(path) == []
    assert hidden_cases.place(path, "elementwise_add", "hidden 2") == f"{path}:9: hidden 2 of elementwise_add"


def test_a_case_of_an_inline_array_is_named_without_a_line(tmp_path):
    path = write(tmp_path / "cases.toml", 'case = [{ exercise = "elementwise_add", params = { m = 1 } }]\n')
    (found,) = hidden_check.unbuilt(path)
    assert found.startswith(f"{path}: hidden 1 of elementwise_add: KeyError")


def test_every_exercise_of_the_course_can_have_hidden_cases():
    tried = 0
    for entry in (*catalog.find(), *catalog.capstone()):
        for exercise in entry.lab.functions:
            for case in exercise.cases:
                labelled = dataclasses.replace(case, label="hidden 1", gpu_only=True)
                assert hidden_check._problem(exercise, labelled) == "", (exercise.name, case.name)
                tried += 1
    assert tried > 100


def test_a_release_has_no_solution_to_try(tmp_path):
    path = write(tmp_path / "cases.toml", GOOD + SOFTMAX)
    units = [one.unit for one in run.expected_files.chosen("1", run.expected_files.units())]
    assert hidden_check.without_solution(path, units) == []
    assert hidden_check.without_solution(path, units, tmp_path) == ["elementwise_add"]


@pytest.fixture
def graded(tmp_path, monkeypatch):
    """Grade a class of one with hidden cases, one task after the other, by the grader itself."""
    monkeypatch.setattr(run, "Engine", OneByOne)
    place = tmp_path / "in" / "ada" / "elementwise_add.py"
    place.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "solutions" / LAB / "elementwise_add.py", place)

    def grade(cases: str) -> str:
        console = Console(width=300, record=True, file=io.StringIO())
        asked = Asked(
            tmp_path / "in", tmp_path / "out", labs="1", tier="cpu", self_test=False, blind_share=0.0,
            keyword="hidden", hidden=write(tmp_path / "cases.toml", cases),
        )  # fmt: skip
        grade_class(asked, console)
        return console.export_text()

    return grade


@pytest.mark.nightly
def test_a_solution_that_fails_a_hidden_case_stops_the_class_before_anybody_is_graded(
    graded, tmp_path, monkeypatch
):
    wrong = ROOT / "solutions" / LAB / "wrong" / "store_without_mask.py"
    tree = tmp_path / "wrong" / LAB / "elementwise_add.py"
    tree.parent.mkdir(parents=True)
    shutil.copyfile(wrong, tree)
    monkeypatch.setattr(hidden_check, "SOLUTIONS", str(tmp_path / "wrong"))
    with pytest.raises(
        AskedError, match=r"cases\.toml:1: hidden 1 of elementwise_add: the course's solution gets OUT"
    ):
        graded(GOOD)
    assert not list((tmp_path / "out").glob("students/*/*/task.json"))


@pytest.mark.nightly
def test_a_class_is_graded_after_its_hidden_cases_were_tried_and_what_needs_a_gpu_is_said(graded, tmp_path):
    printed = graded(f'{GOOD}{GOOD}dtype = "bf16"\n')
    assert "1 hidden cases need a GPU, and were not tried on a solution" in printed
    task = records.read(RunFolder(tmp_path / "out").student("ada").unit(LAB).task, TaskRecord)
    assert task.state is State.GRADED


def test_a_wrong_parameter_ends_the_command_before_anything_is_written(graded, tmp_path):
    with pytest.raises(AskedError, match="hidden cases cannot be built; nothing was graded"):
        graded(GOOD.replace("n =", "m ="))
    assert not list((tmp_path / "out").glob("students"))


@pytest.mark.nightly
def test_without_solutions_the_class_is_graded_and_that_is_said(graded, monkeypatch):
    monkeypatch.setattr(hidden_check, "without_solution", lambda *_: ["elementwise_add"])
    assert "not tried: this checkout has no solution of elementwise_add" in graded(GOOD)

"""`make hint`: one level at a time, from the README alone, for what failed or what is still to do."""

import hashlib
import json
import re
import resource
import shutil
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.hints import hint_of_todo, hints_of, todo_hints
from grader.course.spec import Verdict
from grader.course.todos import open_todos
from grader.results import by_lab
from grader.results.machine import Machine
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.student.next_hint import last_results
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT, copy_course
from grader.tests.helpers.make_words import handed_on

LABS = catalog.find()
WITH_HINTS = [*LABS, *(entry for entry in catalog.capstone() if entry.lab.causes)]
SOFTMAX = Path("labs/lab2_online_softmax/online_softmax.py")


def by_folder(entry):
    return entry.folder.name


def readme(entry):
    return (entry.folder / "README.md").read_text("utf-8")


@pytest.fixture
def course(tmp_path):
    """The labs as a student has them: no solutions, no git."""
    course = copy_course(tmp_path / "course")
    shutil.rmtree(course / "solutions")
    return course


def hint(course, *arguments, **more):
    return python("-m", "grader", "hint", *arguments, root=course, **more)


def results_of(course, verdict, number, source="labs"):
    """What a run leaves that found one thing in softmax_backward, with a hint of this number."""
    machine = Machine(gpu=None, platform="", python="", torch="", triton="", numpy="")
    points = {"points": 0, "graded_points": 0, "not_graded_points": 0, "max_points": 1}
    (course / "results").mkdir(exist_ok=True)
    item = ItemResult(
        id="softmax_backward/correctness/rows=3,cols=5,fp32", kind="correctness", name="rows=3,cols=5,fp32",
        verdict=verdict, hint=number, points=0, max_points=1, seconds=0,
    )  # fmt: skip
    digest = hashlib.sha256((course / SOFTMAX).read_bytes()).hexdigest()
    exercise = ExerciseResult(name="softmax_backward", file=SOFTMAX.name, file_sha256=digest, items=[item])
    lab = LabResult(folder=SOFTMAX.parent.name, number=2, title="", exercises=[exercise], **points)
    results = Results(
        grader="", date="", seconds=0, command="", tier="cpu", source=source, seed=0, arch=90, assurance="",
        machine=machine, labs=[lab], **points,
    )  # fmt: skip
    (course / "results" / "results.json").write_text(results.model_dump_json())
    return results


# -- the README


@pytest.mark.parametrize("entry", WITH_HINTS, ids=by_folder)
def test_every_hint_of_a_readme_is_read_whole_and_without_tags(entry):
    text = readme(entry)
    hints = hints_of(text)
    assert sum(map(len, hints.values())) == text.count("<details><summary>Hint ") > 0
    for levels in hints.values():
        for one in levels.values():
            shown = " ".join([one.title, *(words for _, words in one.parts)])
            assert one.parts
            assert not re.search(r"</?(code|pre|em|summary|details|br|b|i|sub|sup)\b", shown), shown
            assert not re.search(r"&(lt|gt|amp|quot);", shown), shown


def test_code_in_a_hint_keeps_its_lines_and_prose_does_not():
    (is_code, code), (is_prose, prose) = hints_of(readme(LABS[0]))[2][3].parts
    assert (is_code, is_prose) == (True, False)
    assert code.splitlines()[1:] == [
        "load x where exists;  load y where exists",
        "store the sum where exists",
    ]
    assert prose.startswith(
        "`tl.load` and `tl.store` take the block of booleans as `mask=`. No `other=` is needed"
    )


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_every_todo_of_a_lab_has_a_hint_that_is_there(entry):
    hints, found = todo_hints(readme(entry)), hints_of(readme(entry))
    files = {exercise.file for exercise in entry.lab.exercises}
    todos = [(file, todo) for file in files for todo in open_todos((entry.folder / file).read_text("utf-8"))]
    assert todos
    lacking = [
        (file, todo.number) for file, todo in todos if hint_of_todo(hints, file, todo.number) not in found
    ]
    assert lacking == []


def test_a_readme_without_hints_is_refused_and_so_is_a_hint_without_a_level():
    text = readme(LABS[0])
    with pytest.raises(ValueError, match="no hints"):
        hints_of(text.replace("<summary>Hint", "<summary>Tip"))
    with pytest.raises(ValueError, match="hint 2 lacks a level"):
        hints_of(text.replace("Hint 2, level 2", "Note 2, level 2"))


# -- one level at a time


def test_levels_come_one_by_one_and_are_remembered(course):
    shown = [hint(course, "--lab", "2", "-k", "3").stdout for _ in range(4)]
    assert [re.findall(r"level (\d) of 3", text) for text in shown] == [["1"], ["2"], ["3"], []]
    assert "AGAIN=1" in shown[3]
    again = hint(course, "--again").stdout
    assert re.findall(r"level (\d) of 3", again) == ["1", "2", "3"]
    assert "lab 2, hint 3" in again


def test_all_levels_can_be_had_at_once(course):
    assert re.findall(r"level (\d) of 3", hint(course, "--lab", "2", "-k", "3", "--all").stdout) == [
        "1",
        "2",
        "3",
    ]


def test_the_text_is_that_of_the_readme(course):
    shown = " ".join(hint(course, "--lab", "1", "-k", "1").stdout.split())
    assert "Draw the figure above for n = 10 and BLOCK = 4." in shown
    path = course / "labs/lab1_elementwise_add/README.md"
    path.write_text(path.read_text("utf-8").replace("Draw the figure", "Sketch the figure"), "utf-8")
    (course / "results" / "hints.json").unlink()
    assert "Sketch the figure above" in " ".join(hint(course, "--lab", "1", "-k", "1").stdout.split())


def test_without_a_run_the_next_open_todo_decides(course):
    assert "hint 2, for online_softmax.py:29, TODO 1:" in hint(course, "--lab", "2").stdout
    text = (course / SOFTMAX).read_text("utf-8")
    first = next(line for line in text.splitlines() if '"TODO 1:' in line)
    (course / SOFTMAX).write_text(text.replace(first, " " * 8 + "pass"), "utf-8")
    assert "hint 4, for online_softmax.py:33, TODO 2:" in hint(course, "--lab", "2").stdout


def test_a_failure_of_the_last_run_comes_before_an_open_todo(course):
    results_of(course, Verdict.WRONG, 6)
    shown = hint(course).stdout
    assert (
        "lab 2, hint 6, for WRONG in softmax_backward/correctness/rows=3,cols=5,fp32, in the last run"
        in shown
    )
    assert "changed since" not in shown
    (course / SOFTMAX).write_text((course / SOFTMAX).read_text("utf-8") + "\n", "utf-8")
    assert "the file has changed since" in hint(course).stdout


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.NOT_GRADED, Verdict.GRADER_FAULT])
def test_what_did_not_fail_asks_for_no_hint(course, verdict):
    results_of(course, verdict, 6)
    assert "hint 2, for online_softmax.py:29, TODO 1:" in hint(course, "--lab", "2").stdout


def test_a_lab_that_was_graded_before_the_last_run_is_not_forgotten(course):
    by_lab.keep(results_of(course, Verdict.WRONG, 6), course / "results")
    others = {"labs": (), "points": 0}
    last = results_of(course, Verdict.PASS, 6).model_copy(update=others)
    (course / "results" / "results.json").write_text(last.model_dump_json())
    assert "lab 2, hint 6, for WRONG in softmax_backward" in hint(course).stdout


def test_a_failure_without_a_hint_stays_in_its_lab(course):
    results_of(course, Verdict.CRASHED, None)
    done = hint(course)
    assert done.returncode == 2
    assert "there is no hint for it; labs/lab2_online_softmax/README.md has these:" in done.stderr


def test_where_nothing_is_left_to_do_no_hint_is_no_error(course):
    for file in course.glob("labs/lab*/*.py"):
        if (ROOT / "solutions" / file.parent.name / file.name).exists():
            shutil.copy(ROOT / "solutions" / file.parent.name / file.name, file)
    results_of(course, Verdict.PASS, 6)
    done = hint(course)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing failed in the last run, and no TODO is open" in done.stdout
    assert hint(course, "-k", "softmax").returncode == 2


def test_a_run_of_other_files_than_the_students_asks_for_no_hint(course):
    results_of(course, Verdict.WRONG, 6, source="solutions")
    assert "hint 2, for online_softmax.py:29, TODO 1:" in hint(course, "--lab", "2").stdout


def test_a_word_chooses_among_failures_and_todos(course):
    results_of(course, Verdict.WRONG, 6)
    assert "hint 6" in hint(course, "--lab", "2", "-k", "backward").stdout
    assert (
        "hint 5, for online_softmax.py:75, TODO 4:"
        in hint(course, "--lab", "2", "-k", "softmax_forward").stdout
    )


# -- what can go wrong


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"\xff\xfe", b"[]", b'{"labs": {"x": {"1": -1}}}', b'{"version": 1, "more": 2}']
)
def test_a_damaged_memory_is_said_and_begun_anew(course, damage):
    (course / "results").mkdir()
    (course / "results" / "hints.json").write_bytes(damage)
    done = hint(course, "--lab", "2", "-k", "3")
    assert done.returncode == 0
    assert "hints.json is damaged" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert json.loads((course / "results" / "hints.json").read_text())["labs"] == {
        SOFTMAX.parent.name: {"3": 1}
    }
    assert "damaged" not in hint(course, "--lab", "2", "-k", "3").stdout


@pytest.mark.parametrize("text", [None, b"# Lab 2\n", b"\xff\xfe"])
def test_a_readme_without_hints_is_named_and_no_stack_is_shown(course, text):
    path = course / SOFTMAX.parent / "README.md"
    path.unlink() if text is None else path.write_bytes(text)
    done = hint(course, "--lab", "2")
    assert done.returncode == 2
    assert f"{SOFTMAX.parent}/README.md cannot be" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", [b"", b'{"labs": 3}', b"\xff"])
def test_a_damaged_result_leaves_the_open_todos(course, damage):
    (course / "results").mkdir()
    (course / "results" / "results.json").write_bytes(damage)
    assert last_results(course / "results")[1]
    done = hint(course, "--lab", "2")
    assert done.returncode == 0
    assert "results.json cannot be read" in done.stdout
    assert "TODO 1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lab", "2", "-k", "99"], "there is no hint 99"),
        (["-k", "3"], "of which lab"),
        (["--lab", "2", "-k", "nonsense"], "with 'nonsense' in its name"),
        (["--lab", "2", "-k", "3", "--again"], "hint 3 has not been shown yet"),
        (["--lab", "9"], "the labs are 1, 2, 3, 4"),
    ],
)
def test_a_hint_that_is_not_there_is_wrong_usage_and_shows_the_way(course, arguments, words):
    done = hint(course, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["hint", "list", "--help"])
def test_what_only_reads_files_answers_within_a_second_and_never_imports_torch(course, command):
    code = f"import sys; sys.argv = ['grader', {command!r}]\nfrom grader.cli.main import main\ntry: main()\n"
    code += "except SystemExit: print(sorted({'torch', 'triton', 'pytest'} & set(sys.modules)))"
    done = python("-c", code, root=course)
    assert done.stdout.rstrip().endswith("[]"), done.stdout + done.stderr
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert python("-m", "grader", command, root=course).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # It waits for nothing, so this is its time on an idle machine, whatever runs beside this test.
    assert 0.0 < after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 1.0


def test_the_makefile_hands_its_variables_to_hint():
    words, _ = handed_on(ROOT, "hint", {"LAB": "2", "K": "softmax", "AGAIN": "1", "ALL": "1"})
    assert words == ["grader", "hint", "--lab", "2", "-k", "softmax", "--again", "--all"]

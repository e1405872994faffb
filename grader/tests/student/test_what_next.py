"""The last lines of a run: how far each lab is, what stands, and what to do next."""

import hashlib
import json
import shutil

import pytest

from grader.course import catalog
from grader.course.spec import Verdict
from grader.results import by_lab, points, reading
from grader.results.findings import Frame, OpenTodo
from grader.student import what_next
from grader.tests.helpers.course import ROOT

CPU = ROOT / "solutions" / "results" / "cpu.json"


def run_of(*folders, change=lambda item: item, source="labs"):
    """A run of the solutions on a CPU as if they lay in labs/, these labs only, each item changed."""
    whole = reading.read(CPU)
    labs = []
    for lab in whole.labs:
        exercises = [one.model_copy(update={"items": tuple(map(change, one.items))}) for one in lab.exercises]
        labs.append(lab.model_copy(update={"exercises": tuple(exercises)}))
    chosen = tuple(lab for lab in labs if lab.folder in folders)
    assert len(chosen) == len(folders)
    return whole.model_copy(update={"labs": chosen, "source": source})


def failing(verdict, **more):
    """A change that gives the first item of an exercise's correctness another verdict."""

    def change(item):
        first = item.id == "elementwise_add/correctness/n=1,fp32"
        return item.model_copy(update={"verdict": verdict, **more}) if first else item

    return change


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose labs hold the graded files."""
    for number, folder in catalog.folders():
        shutil.copytree(ROOT / "solutions" / folder, tmp_path / "labs" / folder)
        (tmp_path / "labs" / folder / "lab.py").write_text(f"# lab {number}")
    return tmp_path


FIRST, SECOND = (folder for _, folder in catalog.folders()[:2])


def as_of_now(results, checkout):
    """The run with the hashes of the files that are there now."""
    labs = []
    for lab in results.labs:
        exercises = []
        for one in lab.exercises:
            data = (checkout / "labs" / lab.folder / one.file).read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            exercises.append(one.model_copy(update={"file_sha256": digest}))
        labs.append(lab.model_copy(update={"exercises": tuple(exercises)}))
    return results.model_copy(update={"labs": tuple(labs)})


def test_a_lab_that_is_right_names_what_stands_and_the_next_lab(checkout, tmp_path):
    results = as_of_now(run_of(FIRST), checkout)
    by_lab.keep(results, tmp_path / "results")
    bar, last = what_next.lines(results, by_lab.read(tmp_path / "results"), "", checkout)
    assert bar.startswith("lab 1 ✓  lab 2 -")
    graded = points.score_of(results.items).graded
    assert last.startswith(f"Lab 1 is right: all {graded} points that can be graded here. Next: ")
    assert last.endswith(f"labs/{SECOND}/README.md, `make watch LAB=2`")


def test_a_lab_that_changed_since_it_was_right_is_not_done(checkout, tmp_path):
    every = [folder for _, folder in catalog.folders()]
    results = as_of_now(run_of(*every), checkout)
    by_lab.keep(results, tmp_path / "results")
    read = by_lab.read(tmp_path / "results")
    assert what_next.lines(results, read, "", checkout)[1].endswith("Next: gpu-programming/README.md")
    file = checkout / "labs" / FIRST / "elementwise_add.py"
    file.write_text(file.read_text() + "\n# more\n")
    bar, last = what_next.lines(results, read, "", checkout)
    assert bar.startswith("lab 1 ✓ (changed since)  lab 2 ✓  lab 3 ✓")
    assert last.endswith("`make watch LAB=1`")


@pytest.mark.parametrize(
    ("verdict", "more", "words"),
    [
        (
            Verdict.WRONG,
            {"cause": "line 7: a sign"},
            f"elementwise_add in labs/{FIRST}/elementwise_add.py:7;",
        ),
        (
            Verdict.CRASHED,
            {"frames": (Frame(line=9, code="x", function="f"),), "where": "KeyError"},
            "elementwise_add.py:9; `make hint LAB=1` gives a hint",
        ),
        (
            Verdict.NOT_STARTED,
            {"open_todos": (OpenTodo(number=2, line=21, text="the mask"),)},
            "TODO 2 in labs/lab1_elementwise_add/elementwise_add.py:21",
        ),
        (Verdict.SLOW, {}, "make elementwise_add faster at n=1,fp32"),
        (Verdict.GRADER_FAULT, {}, "grade again: the grader or the machine failed"),
    ],
)
def test_what_is_not_right_names_the_place_and_the_command(checkout, verdict, more, words):
    results = run_of(FIRST, change=failing(verdict, **more))
    assert any(item.verdict is verdict for item in results.items)
    *_, last = what_next.lines(results, {}, "", checkout)
    assert last.startswith("Next: ")
    assert words in last


def test_a_selection_is_called_one(checkout):
    bar, last = what_next.lines(run_of(FIRST), {}, "fp32", checkout)
    assert bar == "  ".join(f"lab {number} -" for number, _ in catalog.folders())
    assert last.startswith("A selection, K='fp32': its ")
    assert last.endswith("items are right. Next: `make grade LAB=1` grades the whole lab.")


def compiled(item):
    """An item of a run that only compiles."""
    if item.kind == "codegen":
        return item
    return item.model_copy(update={"verdict": Verdict.NOT_GRADED, "where": "this tier runs nothing"})


def test_a_lab_of_which_no_case_ran_is_not_right_and_its_earlier_run_is_kept(checkout, tmp_path):
    before = as_of_now(run_of(FIRST), checkout)
    by_lab.keep(before, tmp_path)
    only = as_of_now(run_of(FIRST, change=compiled), checkout)
    by_lab.keep(only, tmp_path)
    assert by_lab.read(tmp_path)[FIRST].labs == before.labs
    bar, last = what_next.lines(only, by_lab.read(tmp_path), "", checkout)
    assert bar.startswith("lab 1 ✓")
    assert last == "No case of lab 1 was run here: this tier runs nothing."
    *_, last = what_next.lines(run_of(FIRST, change=compiled), {}, "fp32", checkout)
    assert last == "A selection, K='fp32': no case of it was run here: this tier runs nothing."


def test_the_parts_of_the_capstone_are_named_as_one(checkout):
    (lab,) = run_of(FIRST, source="solutions").labs
    parts = tuple(lab.model_copy(update={"folder": folder}) for folder in ("triton-kernels", "cuda-kernels"))
    results = run_of(FIRST, source="solutions").model_copy(update={"labs": parts})
    (last,) = what_next.lines(results, {}, "", checkout)
    assert last.startswith("Capstone is right: ")
    (last,) = what_next.lines(results, {}, "fp32", checkout)
    assert last.endswith("Next: `make grade LAB=capstone` grades the whole lab.")


def test_a_run_of_another_tree_has_no_next_lab(checkout):
    results = run_of(FIRST, source="solutions")
    (last,) = what_next.lines(results, {}, "", checkout)
    graded = points.score_of(results.items).graded
    assert last == f"Lab 1 is right: all {graded} points that can be graded here."


def test_the_bar_shows_the_share_of_the_points_and_nothing_that_is_damaged(checkout, tmp_path):
    wrong = run_of(SECOND)
    (lab,) = wrong.labs
    for share, cells in ((0.0, "░░░"), (0.4, "▓░░"), (0.99, "▓▓░")):
        items = [one.model_copy(update={"verdict": Verdict.WRONG}) for one in lab.exercises[0].items]
        exercises = (lab.exercises[0].model_copy(update={"items": tuple(items)}), *lab.exercises[1:])
        part = lab.model_copy(update={"exercises": exercises, "points": share * lab.graded_points})
        by_lab.keep(as_of_now(wrong.model_copy(update={"labs": (part,)}), checkout), tmp_path)
        assert f"lab 2 {cells}  lab 3 -" in what_next._bar(by_lab.read(tmp_path), checkout)
    (tmp_path / by_lab.FOLDER / f"{SECOND}.json").write_text("{")
    assert by_lab.read(tmp_path) == {}


def test_a_run_keeps_each_lab_with_its_own_points(tmp_path):
    both = run_of(FIRST, SECOND)
    by_lab.keep(both, tmp_path)
    found = by_lab.read(tmp_path)
    assert list(found) == [FIRST, SECOND]
    assert found[SECOND].points == pytest.approx(both.labs[1].points)
    assert found[SECOND].labs == (both.labs[1],)
    other = json.loads((tmp_path / by_lab.FOLDER / f"{FIRST}.json").read_text())
    assert [lab["folder"] for lab in other["labs"]] == [FIRST]

"""Points computed again from stored measurements: what changes, what is kept, and what is refused."""

import dataclasses
import io

import pytest
from rich.console import Console

from grader.classroom import records
from grader.classroom.grading import attempts, fingerprint, keyword_filter, rescore, rescoring
from grader.classroom.intake import expected_files
from grader.classroom.records import Receipt, RunRecord, TaskRecord
from grader.course import catalog
from grader.course.items import SPEED, graded_items
from grader.course.spec import Case, Verdict
from grader.results import reading, scoring
from grader.tests.classroom.a_class import AClass
from grader.tests.helpers.result_fakes import record, with_items

ENTRY = catalog.find()[0]
STORED = [lab for lab in record("h200.json").labs if lab.folder == ENTRY.folder.name]
RESULTS = record("h200.json").model_copy(update={"labs": tuple(STORED)})


def test_an_inconclusive_shape_keeps_what_it_counts_for_where_points_are_computed_again():
    for undecided in (False, True):
        noisy = with_items(
            RESULTS,
            lambda item, undecided=undecided: (
                item.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "undecided": undecided})
                if item.kind == SPEED
                else item
            ),
        )
        again = rescoring.rescored(noisy, items_with())
        earned = sum(item.points for item in again.items if item.kind == SPEED)
        assert (earned == 0.0) is undecided
        assert (again.not_graded_points > 0.0) is undecided
        assert {item.undecided for item in again.items if item.kind == SPEED} == {undecided}


def items_with(points=70, **speed) -> rescoring.Items:
    """The items of lab 1 with other points for its cases, or other thresholds."""
    (exercise,) = ENTRY.lab.exercises
    measured = {item.name for item in RESULTS.items}  # the lab may have got more cases since
    cases = tuple(case for case in exercise.cases if case.name in measured)
    changed = dataclasses.replace(
        exercise, cases=cases, points=points, speed=dataclasses.replace(exercise.speed, **speed)
    )
    entry = dataclasses.replace(ENTRY, lab=dataclasses.replace(ENTRY.lab, exercises=(changed,)))
    return rescoring.by_id(graded_items(entry))


def timed(percent, verdict=Verdict.PASS):
    """The stored results with a timed shape that reached some percent of the baseline."""

    def change(item):
        if item.kind != SPEED:
            return item
        return item.model_copy(
            update={
                "verdict": verdict,
                "timing": item.timing.model_copy(update={"percent_of_baseline": percent}),
            }
        )

    return with_items(RESULTS, change)


def test_stored_results_have_the_points_that_their_measurements_give():
    found = rescoring.rescored(RESULTS, items_with())
    assert STORED
    assert found.points > 90
    assert {item.id: item.points for item in found.items} == {item.id: item.points for item in RESULTS.items}


def test_points_of_cases_follow_the_lab_and_nothing_else_changes():
    found = rescoring.rescored(RESULTS, items_with(points=35))
    assert found.max_points == 65.0
    for before, after in zip(RESULTS.items, found.items, strict=True):
        kept = before.model_copy(update={"points": after.points, "max_points": after.max_points})
        assert kept == after or after.kind == SPEED


@pytest.mark.parametrize(
    ("percent", "full_at", "passing_at", "verdict"),
    [(80.0, 90, 70, "PASS"), (80.0, 80, 70, "PASS"), (80.0, 100, 85, "SLOW"), (65.0, 90, 60, "PASS")],
)
def test_thresholds_decide_again_on_the_stored_percent(percent, full_at, passing_at, verdict):
    items = items_with(full_at=full_at, passing_at=passing_at)
    (speed,) = [item for item in items.values() if item.kind == SPEED]
    stored = timed(percent, Verdict.PASS if percent >= 70 else Verdict.SLOW)
    (found,) = [item for item in rescoring.rescored(stored, items).items if item.kind == SPEED]
    assert found.verdict.value == verdict
    assert found.points == pytest.approx(scoring.speed_share([percent], speed.exercise.speed) * 30)
    assert (found.timing.full_at_percent, found.timing.passing_at_percent) == (full_at, passing_at)
    assert bool(found.cause) == (verdict == "SLOW")


@pytest.mark.parametrize("verdict", [Verdict.IMPOSSIBLE, Verdict.WRONG])
def test_a_verdict_that_no_threshold_decides_stays_and_earns_nothing(verdict):
    (found,) = [
        i
        for i in rescoring.rescored(timed(99.0, verdict), items_with(passing_at=50)).items
        if i.kind == SPEED
    ]
    assert (found.verdict, found.points) == (verdict, 0.0)


def test_an_item_that_is_gone_or_was_never_measured_is_refused():
    items = dict(items_with())
    key, item = next(iter(items.items()))
    with pytest.raises(rescoring.RescoreError, match="is no longer in the lab"):
        rescoring.rescored(RESULTS, {one: items[one] for one in items if one != key})
    with pytest.raises(rescoring.RescoreError, match="new was never measured"):
        rescoring.rescored(RESULTS, {**items, (key[0], "elementwise_add/correctness/new"): item})


@pytest.fixture
def a_class(tmp_path, monkeypatch):
    """Two students, one right and one wrong, graded with 100 points; now the lab gives 60."""
    made = AClass(tmp_path, monkeypatch)
    made.hand_in("ada", "right")
    made.hand_in("bob", "wrong")
    assert made.grade()[0] == 0
    other_points(monkeypatch, 60)
    return made


def other_points(monkeypatch, points: int) -> None:
    """Give lab 1 other points from now on, as a change of its lab.py would."""
    (exercise,) = ENTRY.lab.exercises
    exercise = dataclasses.replace(
        exercise, points=points, cases=(Case({"n": 1}, label="n=1"),), speed=None, codegen=None
    )
    entry = dataclasses.replace(ENTRY, lab=dataclasses.replace(ENTRY.lab, exercises=(exercise,)))
    monkeypatch.setattr(keyword_filter, "items", lambda *_: list(graded_items(entry)))
    monkeypatch.setattr(fingerprint, "lab", lambda _: f"{points} points")


def rescored(a_class, **options) -> str:
    console = Console(width=300, record=True, file=io.StringIO())
    rescore.rescore(a_class.out.root, None, console, **options)
    return console.export_text()


def test_a_class_gets_the_points_of_now_as_an_attempt_of_its_own(a_class):
    _, printed = a_class.grade()
    assert "2 were graded with other points or thresholds than the labs have now: make rescore" in printed
    printed = rescored(a_class, write=False)
    assert (
        "2 graded with other points or thresholds: 0 higher, 1 lower, 1 the same; nothing was written"
        in printed
    )
    assert a_class.points("ada") == 100.0
    printed = rescored(a_class)
    assert "| ada/lab1_elementwise_add | elementwise_add | 100 | 60 | -40 |" in " ".join(printed.split())
    assert "bob" not in printed
    unit = a_class.unit("ada")
    task, receipt = a_class.task("ada"), records.read(unit.receipt, Receipt)
    assert (a_class.points("ada"), a_class.points("bob"), task.attempt, task.measured_in) == (60.0, 0.0, 2, 1)
    assert task.counts == "attempt 2 counts: measured in attempt 1, with the points of now"
    assert reading.read(unit.attempt(1).results).points == 100.0
    assert (receipt.points, receipt.measured_in, receipt.lab_sha256) == (60.0, 1, "60 points")
    assert receipt.results_sha256 == attempts.sha256(unit.results)
    assert "0 graded with other points" in rescored(a_class)
    before = {student: a_class.task(student) for student in ("ada", "bob")}
    _, printed = a_class.grade()  # no change of points grades anybody again
    assert "other points" not in printed
    assert {student: a_class.task(student) for student in before} == before
    units = records.read(a_class.out.run, RunRecord).units
    assert units == [one.unit for one in expected_files.units() if one.unit.lab == "1"]


def test_points_can_change_twice_and_a_regrade_is_an_attempt_after_them(a_class, monkeypatch):
    rescored(a_class)
    monkeypatch.setattr(fingerprint, "lab", lambda _: "other points again")
    rescored(a_class)
    assert (a_class.task("ada").attempt, a_class.task("ada").measured_in) == (3, 1)
    a_class.grade(again=True, only=("ada",))
    assert records.read(a_class.unit("ada").attempt(4).task, TaskRecord).measured_in is None


def test_nothing_is_written_where_one_unit_cannot_be_rescored(a_class, monkeypatch):
    before = {path: path.read_bytes() for path in a_class.out.students.rglob("*") if path.is_file()}
    monkeypatch.setattr(fingerprint, "measures", lambda _: "other cases")
    with pytest.raises(rescoring.RescoreError, match="changed in more than its points"):
        rescored(a_class)
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint, "lab", lambda _: "other points")
    with pytest.raises(
        rescoring.RescoreError, match=r"ada/lab1_elementwise_add: .*n=1 is no longer in the lab"
    ):
        rescored(a_class)  # the real lab has no item n=1
    results = a_class.unit("ada").results
    results.write_bytes(results.read_bytes() + b" ")
    with pytest.raises(rescoring.RescoreError, match="not the one that was graded"):
        rescored(a_class)
    results.write_bytes(results.read_bytes()[:-1])
    assert {path: path.read_bytes() for path in a_class.out.students.rglob("*") if path.is_file()} == before


def test_partners_both_keep_a_copy_and_both_get_the_points_of_now(tmp_path, monkeypatch):
    made = AClass(tmp_path, monkeypatch)
    made.hand_in("team", "right")
    roster = tmp_path / "roster.csv"
    roster.write_text("id,group\nann,team\nbob,team\n")
    made.grade(roster=roster)
    other_points(monkeypatch, 60)
    printed = rescored(made)
    assert "2 graded with other points or thresholds: 0 higher, 2 lower, 0 the same" in printed
    assert len([*(tmp_path / "counts").iterdir()]) == 1, "nothing was graded again"
    for name in ("ann", "bob"):
        unit, task = made.unit(name), made.task(name)
        assert (made.points(name), task.attempt, task.measured_in) == (60.0, 2, 1)
        assert reading.read(unit.attempt(1).results).points == 100.0
        assert records.read(unit.receipt, Receipt).results_sha256 == attempts.sha256(unit.results)
    _, printed = made.grade(roster=roster)
    assert "other points" not in printed
    assert "changed" not in printed
    assert (made.points("ann"), made.points("bob")) == (60.0, 60.0)
    assert [made.task(name).attempt for name in ("ann", "bob")] == [2, 2]


def test_a_changed_receipt_gets_no_new_seal(a_class):
    unit = a_class.unit("ada")
    text = unit.receipt.read_text()
    changed = text.replace('"points": 100.0', '"points": 9.0')
    assert changed != text
    unit.receipt.write_text(changed)
    with pytest.raises(rescoring.RescoreError, match="run make class again"):
        rescored(a_class)

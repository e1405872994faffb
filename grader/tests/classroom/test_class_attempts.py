"""A regrade keeps history: every attempt has its papers, and a stated rule says which one counts."""

import os
import shutil
from pathlib import Path

import pytest

from grader.classroom import records
from grader.classroom.gradebook import pages
from grader.classroom.gradebook import reading as gradebook
from grader.classroom.grading import agreement, attempts, run, summary
from grader.classroom.records import Drift, Receipt, State, TaskRecord
from grader.results import reading
from grader.tests.classroom.a_class import LAB, AClass

FOUR = ("log.txt", "receipt.json", "results.json", "task.json")


@pytest.fixture
def a_class(tmp_path, monkeypatch):
    made = AClass(tmp_path, monkeypatch)
    made.hand_in("ada", "right")
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FOUR}


def test_a_regrade_keeps_the_papers_of_every_attempt(a_class):
    assert a_class.grade()[0] == 0
    unit = a_class.unit("ada")
    first = contents(unit.root)
    assert not unit.attempts.exists()
    for number in (2, 3):
        assert a_class.grade(again=True)[0] == 0
        assert a_class.task("ada").attempt == number
        assert contents(unit.attempt(1).root) == first
        for one in range(1, number + 1):
            place = unit.attempt(one)
            record, receipt = records.read(place.task, TaskRecord), records.read(place.receipt, Receipt)
            assert record.attempt == receipt.attempt == one
            assert attempts.sha256(place.results) == record.results_sha256 == receipt.results_sha256
    seeds = {reading.read(unit.attempt(one).results).seed for one in (1, 2, 3)}
    assert len(seeds) == 3
    before = {path: path.read_bytes() for path in a_class.out.students.rglob("*") if path.is_file()}
    assert a_class.grade()[0] == 0  # nothing has changed
    assert {path: path.read_bytes() for path in a_class.out.students.rglob("*") if path.is_file()} == before


def test_a_regrade_does_not_lower_a_grade_unless_it_is_told_to(a_class):
    a_class.hand_in("ada", "right-then-wrong")
    a_class.grade()
    code, printed = a_class.grade(again=True)
    record = a_class.task("ada")
    assert (code, a_class.points("ada"), record.attempt, record.latest) == (0, 100.0, 1, 2)
    assert "a regrade lowers no grade" in record.counts
    for words in (
        "| ada/lab1_elementwise_add | elementwise_add | 100 | 0 | -100 |",
        "PASS, then WRONG",
        record.counts,
    ):
        assert words in " ".join(printed.split())
    pages.write_students(gradebook.read(a_class.out), a_class.folder / "pages", lambda: None)
    page = (a_class.folder / "pages" / "ada" / f"{LAB}.html").read_text("utf-8")
    assert f"Graded more than once: {record.counts}." in page
    assert a_class.grade()[0] == 0  # decided: another command grades nothing and changes nothing
    assert a_class.task("ada") == record
    a_class.grade(regrade="latest")  # without a new grading
    assert (a_class.points("ada"), a_class.task("ada").attempt, a_class.task("ada").latest) == (0.0, 2, None)


def test_a_regrade_that_is_better_counts(a_class):
    a_class.hand_in("ada", "wrong-then-right")
    a_class.grade()
    assert a_class.points("ada") == 0.0
    _, printed = a_class.grade(again=True)
    assert a_class.points("ada") == 100.0
    assert "WRONG, then PASS" in " ".join(printed.split())


def test_a_new_hand_in_counts_also_where_it_is_worse(a_class):
    a_class.grade()
    a_class.hand_in("ada", "wrong")
    a_class.grade()
    assert (a_class.points("ada"), a_class.task("ada").attempt) == (0.0, 2)
    assert a_class.task("ada").counts == "attempt 2 counts: it is a new hand-in"
    assert reading.read(a_class.unit("ada").attempt(1).results).points == 100.0


@pytest.mark.slow
def test_a_new_hand_in_that_cannot_be_graded_leaves_the_points_open(a_class):
    a_class.grade()
    a_class.hand_in("ada", "crashes")
    assert a_class.grade()[0] == 3
    assert a_class.task("ada").state is State.FAULT
    assert records.read(a_class.unit("ada").attempt(1).task, TaskRecord).state is State.GRADED
    a_class.hand_in("ada", "right other")
    assert a_class.grade()[0] == 0
    assert (a_class.task("ada").attempt, a_class.points("ada")) == (2, 100.0)


@pytest.mark.slow
def test_a_regrade_that_ends_with_a_fault_leaves_the_grade(a_class):
    a_class.hand_in("ada", "right-then-crashes")
    a_class.grade()
    code, printed = a_class.grade(again=True)
    assert code == 3
    assert "open after a fault" in printed
    assert (a_class.points("ada"), a_class.task("ada").attempt) == (100.0, 1)


def test_a_blind_grading_of_other_items_than_the_attempt_that_counts_stops_nothing(a_class):
    a_class.grade(blind_share=1.0)
    again = a_class.out.student("ada").unit(LAB, again=True)
    pair = [("ada", LAB)]
    assert agreement.measure(a_class.out, pair).regraded == [f"ada/{LAB}"]
    again.results.write_bytes(again.results.read_bytes().replace(b"correctness/n=1", b"correctness/n=2"))
    assert agreement.measure(a_class.out, pair).regraded == []


def test_a_command_for_some_students_grades_nobody_blind_unless_it_says_so(a_class):
    a_class.hand_in("bob", "right")
    a_class.grade(blind_share=None)
    (first,) = records.read(a_class.out.drift, Drift).regraded
    other = "bob" if first.startswith("ada") else "ada"
    again = a_class.out.student(other).unit(LAB, again=True)
    a_class.grade(blind_share=None, only=(other,), again=True)
    assert not again.root.exists()
    assert records.read(a_class.out.drift, Drift).regraded == [first]
    a_class.grade(blind_share=1.0, only=(other,))
    assert again.results.exists()
    assert sorted(records.read(a_class.out.drift, Drift).regraded) == [f"ada/{LAB}", f"bob/{LAB}"]


def test_regrades_of_many_are_shown_where_something_changed(a_class, monkeypatch):
    monkeypatch.setattr(summary, "MOST_SHOWN", 1)
    a_class.hand_in("bob", "wrong-then-right")
    a_class.grade()
    _, printed = a_class.grade(again=True)
    assert "graded again: 2, of which 1 have other points or verdicts" in printed
    assert "bob/lab1_elementwise_add: attempt 2 counts" in printed
    assert "ada/" not in printed


@pytest.mark.slow
def test_what_was_withdrawn_and_handed_in_again_is_kept_in_between(a_class):
    a_class.grade()
    shutil.rmtree(a_class.folder / "in" / "ada")
    (a_class.folder / "in" / "ada").mkdir()
    for _ in range(2):
        a_class.grade()
        assert (a_class.task("ada").state, a_class.task("ada").attempt) == (State.MISSING, 2)
        assert records.read(a_class.unit("ada").attempt(1).task, TaskRecord).state is State.GRADED
    a_class.hand_in("ada", "wrong")
    a_class.grade()
    assert (a_class.task("ada").state, a_class.points("ada")) == (State.GRADED, 0.0)


def test_a_regrade_that_was_stopped_goes_on_and_the_grade_stands_meanwhile(a_class, monkeypatch):
    a_class.grade()

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run._Class, "_grade", stopped)
        with pytest.raises(KeyboardInterrupt):
            a_class.grade(again=True)
    assert (a_class.task("ada").attempt, a_class.points("ada")) == (1, 100.0)
    a_class.grade()  # without AGAIN
    assert a_class.task("ada").attempt == 2
    a_class.grade()
    assert a_class.task("ada").attempt == 2


@pytest.mark.parametrize("left", range(5))
def test_a_copy_that_was_cut_short_is_completed(a_class, monkeypatch, left):
    a_class.hand_in("ada", "wrong-then-right")
    a_class.grade()
    real, written = attempts.replace, []

    class Killed(BaseException):
        pass

    def cut(path, data):
        if path.parent == a_class.unit("ada").root:
            if len(written) == left:
                raise Killed
            written.append(path)
        real(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "replace", cut)
        patched.setattr(records, "replace", cut)
        try:
            a_class.grade(again=True)
        except Killed:
            assert left < 4
        else:
            assert left == 4  # log, results, receipt and record
    a_class.grade()
    unit = a_class.unit("ada")
    assert (a_class.points("ada"), a_class.task("ada").attempt) == (100.0, 2)
    assert [(unit.root / name).read_bytes() for name in FOUR[:3]] == [
        (unit.attempt(2).root / name).read_bytes() for name in FOUR[:3]
    ]


def test_results_that_were_changed_are_put_back_from_their_attempt(a_class):
    a_class.grade()
    a_class.grade(again=True)
    unit = a_class.unit("ada")
    graded = unit.results.read_bytes()
    unit.results.write_bytes(graded.replace(b"100.0", b"200.0"))
    a_class.grade()
    assert unit.results.read_bytes() == graded


def hand_in_twice(a_class, first: str, second: str) -> None:
    """Two folders of one student; the second is an hour newer."""
    for hour, (name, word) in enumerate((("eve", first), ("eve.git", second))):
        a_class.hand_in(name, word)
        file = a_class.folder / "in" / name / "elementwise_add.py"
        os.utime(file, (1_800_000_000 + 3600 * hour,) * 2)


@pytest.mark.parametrize(
    ("policy", "first", "second", "points", "hour"),
    [("best", "right", "wrong", 100.0, "08"), ("best", "wrong", "right", 100.0, "09"),
     ("last", "right", "wrong", 0.0, "09")],
)  # fmt: skip
def test_of_two_hand_ins_the_best_or_the_last_counts_with_its_time(
    a_class, policy, first, second, points, hour
):
    hand_in_twice(a_class, first, second)
    assert a_class.grade(attempts=policy)[0] == 0
    assert a_class.points("eve") == points
    cell = next(row for row in gradebook.read(a_class.out).rows if row.id == "eve").cells[0]
    assert f"{cell.moment:%H}" == hour
    assert a_class.points("ada") == 100.0


def test_hand_ins_that_were_graded_are_not_graded_again(a_class):
    hand_in_twice(a_class, "right", "wrong")
    a_class.grade(attempts="best")
    graded = len(list((a_class.folder / "counts").iterdir()))
    assert graded == 3  # ada's, and both of eve's
    for _ in range(2):
        assert a_class.grade(attempts="best")[0] == 0
    assert len(list((a_class.folder / "counts").iterdir())) == graded
    assert a_class.points("eve") == 100.0


@pytest.mark.parametrize("tampered", ["results", "results and task", "receipt"])
def test_a_grade_that_was_changed_in_the_folder_is_open_and_said(a_class, tampered):
    a_class.grade()
    unit = a_class.unit("ada")
    if tampered == "receipt":
        receipt = records.read(unit.receipt, Receipt)
        records.write(unit.receipt, receipt.model_copy(update={"points": 99.0}))
    else:
        text = unit.results.read_text().replace('"points":100.0', '"points":99.0')
        assert text != unit.results.read_text()
        unit.results.write_text(text)
    if tampered == "results and task":
        task = a_class.task("ada")
        records.write(unit.task, task.model_copy(update={"results_sha256": attempts.sha256(unit.results)}))
    cell = next(row for row in gradebook.read(a_class.out).rows if row.id == "ada").cells[0]
    assert cell.is_open
    assert gradebook.CHANGED in cell.looks
    code, printed = a_class.grade()  # as the cell says, the next command grades it again
    assert (code, a_class.points("ada")) == (0, 100.0)
    assert "ada/lab1_elementwise_add was changed after it was graded" in printed
    assert records.read(unit.receipt, Receipt).points == 100.0
    assert {path.name for path in unit.changed.iterdir()} == {"results.json", "receipt.json"}


def group(a_class, word: str, *, lab: str = "elementwise_add.py") -> Path:
    """A roster of two partners and their submission."""
    path = a_class.folder / "in" / "team" / lab
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(word)
    roster = a_class.folder / "roster.csv"
    roster.write_text("id,group\nann,team\nbob,team\nada,\n")
    return roster


def test_partners_are_graded_once_and_each_keeps_the_grade(a_class):
    roster = group(a_class, "right")
    a_class.grade(roster=roster)
    assert (a_class.points("ann"), a_class.points("bob")) == (100.0, 100.0)
    assert len(list((a_class.folder / "counts").iterdir())) == 2  # the pair, and ada
    shutil.rmtree(a_class.folder / "in" / "team")
    a_class.hand_in("ann", "wrong")
    a_class.grade(roster=roster, only=("ann",))
    assert (a_class.points("ann"), a_class.points("bob")) == (0.0, 100.0)


def test_a_group_that_hands_in_later_replaces_what_each_had_alone(a_class):
    a_class.hand_in("ann", "right")
    a_class.hand_in("bob", "wrong")
    roster = group(a_class, "wrong-together")
    shutil.rmtree(a_class.folder / "in" / "team")
    a_class.grade(roster=roster)
    assert (a_class.points("ann"), a_class.points("bob")) == (100.0, 0.0)
    for name in ("ann", "bob"):
        shutil.rmtree(a_class.folder / "in" / name)
    group(a_class, "right-together")
    a_class.grade(roster=roster, only=("bob",))
    assert (a_class.points("ann"), a_class.points("bob")) == (100.0, 100.0)
    assert a_class.unit("bob").attempts.exists()  # what bob had alone is kept


def test_a_best_hand_in_that_is_withdrawn_counts_no_more(a_class):
    hand_in_twice(a_class, "right", "wrong")
    a_class.grade(attempts="best")
    assert a_class.points("eve") == 100.0
    shutil.rmtree(a_class.folder / "in" / "eve")
    a_class.grade(attempts="best")
    assert a_class.points("eve") == 0.0


def test_a_fault_of_an_earlier_hand_in_is_told_and_tried_again(a_class):
    hand_in_twice(a_class, "fault", "wrong")
    code, printed = a_class.grade(attempts="best")
    assert code == 3
    assert "open after a fault of the machine: eve/" in printed

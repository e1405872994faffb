"""`verify` names what differs, and never says that all agrees where it could not look."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader.classroom import records
from grader.classroom.grading import fingerprint, run_secret
from grader.classroom.grading import verify as verifying
from grader.classroom.records import Receipt, TaskRecord
from grader.cli.main import main
from grader.results import reading
from grader.tests.classroom import fake_grader
from grader.tests.classroom.a_class import AClass
from grader.tests.helpers.result_fakes import with_items


@pytest.fixture
def a_class(tmp_path, monkeypatch):
    monkeypatch.setattr(verifying, "GRADER", (sys.executable, fake_grader.__file__))
    monkeypatch.setattr(verifying, "_expected_points", lambda *_: None)  # the fake's item is in no lab
    made = AClass(tmp_path, monkeypatch)
    made.hand_in("ada", "right")
    made.grade()
    return made


def verify(receipt: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["verify", str(receipt), *options], catch_exceptions=False)
    return done.exit_code, done.output


def last(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_an_untouched_grading_agrees(a_class):
    code, text = verify(a_class.unit("ada").receipt)
    assert (code, last(text)) == (0, "agrees"), text
    assert "DIFFERS" not in text


def sealed_again(a_class, **changes) -> None:
    """Change the receipt as somebody would who has the published secret, and not the sealing key."""
    path = a_class.unit("ada").receipt
    changed = records.read(path, Receipt).model_copy(update=changes)
    secret = a_class.out.secret.read_bytes()
    seal = run_secret.seal(secret, changed)
    records.write(path, changed.model_copy(update={"seal": seal}))


def test_an_edited_receipt_is_named_with_its_field_and_its_seal(a_class):
    sealed_again(a_class, points=43.75)
    code, text = verify(a_class.unit("ada").receipt)
    assert (code, last(text)) == (1, "differs")
    assert "DIFFERS  points: 43.75 in the receipt, 100.0 in results.json" in text
    assert "DIFFERS  the receipt was changed after it was written" in text


@pytest.mark.parametrize("missing", ["sealing_key", "secret"])
def test_without_a_key_it_says_what_it_could_not_check_and_does_not_say_agrees(a_class, missing):
    getattr(a_class.out, missing).unlink()
    code, text = verify(a_class.unit("ada").receipt)
    assert code == 4
    assert last(text) == "nothing differs in what could be checked; not everything could"
    assert f"NOT SEEN state/{missing.replace('_', '-')} is not here" in text


def test_an_edited_points_field_without_the_key_differs(a_class):
    sealed_again(a_class, points=43.75)
    a_class.out.sealing_key.unlink()
    code, text = verify(a_class.unit("ada").receipt)
    assert (code, last(text)) == (1, "differs")
    assert "points: 43.75 in the receipt" in text


def edit_results(a_class, change) -> None:
    """Edit results.json, and receipt and task.json so that every hash fits."""
    unit = a_class.unit("ada")
    found = json.loads(unit.results.read_bytes())
    change(found)
    data = json.dumps(found).encode()
    unit.results.write_bytes(data)
    from hashlib import sha256

    digest = sha256(data).hexdigest()
    records.write(
        unit.task, records.read(unit.task, TaskRecord).model_copy(update={"results_sha256": digest})
    )
    parsed = reading.parse(data)
    a_class.out.sealing_key.unlink()
    update = {
        "results_sha256": digest, "points": parsed.points, "rounds_sha256": reading.measured_sha256(data),
        "tier": parsed.tier,
    }  # fmt: skip
    records.write(unit.receipt, records.read(unit.receipt, Receipt).model_copy(update=update))


def of_item(**changes):
    def change(found):
        found["labs"][0]["exercises"][0]["items"][0] |= changes

    return change


def totals(found):
    of_item(points=43.75)(found)
    found["points"] = found["labs"][0]["points"] = 43.75


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_item(points=43.75), "points of lab1_elementwise_add: 100.0, and its items add up to 43.75"),
        (totals, "elementwise_add/correctness/n=1: points 43.75, then 100.0"),
        (of_item(verdict="WRONG"), "elementwise_add/correctness/n=1: verdict WRONG, then PASS"),
        (of_item(reason="MISMATCH"), "elementwise_add/correctness/n=1: reason MISMATCH, then none"),
        (of_item(max_points=50.0), "elementwise_add/correctness/n=1: max_points 50.0, then 100.0"),
        (
            lambda found: found["labs"][0]["exercises"][0].update(file_sha256="0" * 64),
            "file of elementwise_add: 0000000000000000 in results.json, ",
        ),
        (
            lambda found: found["labs"][0]["exercises"][0].update(items=[]),
            "elementwise_add/correctness/n=1: not in the first grading",
        ),
    ],
)
def test_a_results_file_whose_hashes_all_fit_differs_by_name(a_class, change, words):
    edit_results(a_class, change)
    code, text = verify(a_class.unit("ada").receipt)
    assert (code, last(text)) == (1, "differs"), text
    assert f"DIFFERS  {words}" in text


def test_a_changed_file_and_a_changed_task_are_named(a_class):
    path = a_class.out.student("ada").files / "lab1_elementwise_add" / "elementwise_add.py"
    path.write_text("wrong")
    task = a_class.task("ada")
    records.write(a_class.unit("ada").task, task.model_copy(update={"attempt": 7, "student": "bob"}))
    _, text = verify(a_class.unit("ada").receipt)
    assert "DIFFERS  lab1_elementwise_add/elementwise_add.py is " in text
    assert "DIFFERS  attempt: 1 in the receipt, 7 in task.json" in text
    assert "DIFFERS  student: ada in the receipt, bob in task.json" in text


def test_every_attempt_can_be_verified(a_class):
    a_class.grade(again=True)
    for number in (1, 2):
        code, text = verify(a_class.unit("ada").attempt(number).receipt)
        assert (code, last(text)) == (0, "agrees"), text


@pytest.mark.usefixtures("a_class")
def test_a_run_with_one_key_is_verified_and_the_limit_of_its_seal_is_said(tmp_path, monkeypatch):
    (tmp_path / "older").mkdir()
    older = AClass(tmp_path / "older", monkeypatch)
    older.hand_in("ada", "right")
    older.out.secret.parent.mkdir(parents=True)
    older.out.secret.write_text("a secret of the course")
    older.grade()
    code, text = verify(older.unit("ada").receipt)
    assert (code, last(text)) == (0, "agrees"), text
    assert "sealed with the secret itself" in text
    older.out.sealing_key.write_text("0" * 64)  # with a key of its own, such a seal is worth nothing
    assert verify(older.unit("ada").receipt)[0] == 1


def test_points_that_do_not_follow_from_verdicts_and_times_differ(a_class, monkeypatch):
    monkeypatch.undo()
    unit = a_class.unit("ada")
    receipt, first = records.read(unit.receipt, Receipt), reading.read(unit.results)
    found = verifying.Found()
    one_point = with_items(first, lambda item: item.model_copy(update={"points": 1.0}))
    monkeypatch.setattr(verifying.rescoring, "rescored", lambda *_: one_point)
    verifying._check_points(found, receipt, first, None)
    assert (
        "elementwise_add/correctness/n=1: points 100.0, and its verdict and time give 1.0" in found.lines[0]
    )
    monkeypatch.setattr(fingerprint, "lab", lambda _: "changed")
    found = verifying.Found()
    verifying._check_points(found, receipt, first, None)
    assert (found.agrees, found.unseen) == (True, 1)
    assert "the lab or its points have changed since: the points of single items" in found.lines[0]


def test_an_attempt_with_points_of_earlier_is_no_difference_and_not_seen_to_the_end(a_class, monkeypatch):
    unit = a_class.unit("ada")
    with_other_points = json.loads(unit.results.read_bytes())
    of_item(points=50.0, max_points=50.0)(with_other_points)
    monkeypatch.setattr(fingerprint, "lab", lambda _: "other points")
    monkeypatch.setattr(verifying, "_again", lambda *_: reading.parse(json.dumps(with_other_points)))
    code, text = verify(unit.receipt)
    assert code == 4, text
    assert "DIFFERS" not in text
    assert "1 verdicts with their reasons\n" in text

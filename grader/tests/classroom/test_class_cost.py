"""What a class cost is read off its run folder, and only off one whose time is all its own."""

import pytest
from click.testing import CliRunner

from grader.classroom import records
from grader.classroom.grading import cost
from grader.classroom.records import RunRecord, SelfTest, TaskRecord
from grader.classroom.run_folder import RunFolder
from grader.cli.main import main
from grader.course.spec import Verdict
from grader.tests.classroom.class_fakes import FakeClass, lab_of, record

UNIT = "lab1_elementwise_add"


def at(minutes: float) -> str:
    """A time of the morning on which the fakes' runs begin."""
    return f"2026-10-06T08:{int(minutes):02}:{round(60 * (minutes % 1)):02}+00:00"


@pytest.fixture
def make(tmp_path):
    """A run of eight minutes, two of self-test; each grading takes one, and `ends` says when it ended."""

    def make(name: str, ends: dict[str, float], change=lambda item: item, gpus=()) -> RunFolder:
        fake = FakeClass(tmp_path / name, {UNIT: "1"})
        for number, (student, end) in enumerate(ends.items()):
            fake.add(student)
            results = lab_of(record("h200.json"), UNIT, change)
            fake.grade(student, UNIT, results.model_copy(update={"date": at(end)}))
            place = fake.folder.student(student).unit(UNIT).task
            given = {"seconds": 60.0, "accelerator": gpus[number % len(gpus)] if gpus else ""}
            records.write(place, records.read(place, TaskRecord).model_copy(update=given))
        fake.finish()
        folder = fake.folder
        times = {"began": at(0), "finished": at(8)}
        records.write(folder.run, records.read(folder.run, RunRecord).model_copy(update=times))
        test = records.read(folder.selftest, SelfTest)
        records.write(folder.selftest, test.model_copy(update={"date": at(2)}))
        return folder

    return make


def test_seconds_rate_and_how_many_at_once(make):
    run = cost.measure(
        [make("run", dict(zip("abcdefgh", (3, 3, 4, 5, 6, 7, 7, 8), strict=True)), gpus="01").root]
    ).runs[0]
    assert (run.students, run.gradings, run.lost, run.states) == (8, 8, 0, {"GRADED": 8})
    assert (run.seconds, run.self_test_s, run.grading_s, run.accelerators) == (480, 120, 480, 2)
    assert run.at_once == pytest.approx(480 / 360)
    assert run.rate == pytest.approx(8 / 6)
    assert (run.units[UNIT].gradings, run.units[UNIT].median_s) == (8, 60)


def test_a_run_that_was_resumed_has_no_cost(make):
    with pytest.raises(cost.CostError, match="nothing was graded for 180 s"):
        cost.measure([make("run", {"a": 3, "b": 7, "c": 8}).root])


def test_a_run_that_has_not_ended_has_no_cost(make):
    folder = make("run", {"a": 3})
    records.write(folder.run, records.read(folder.run, RunRecord).model_copy(update={"finished": None}))
    with pytest.raises(cost.CostError, match="is not finished"):
        cost.measure([folder.root])


def test_a_folder_that_is_no_run_is_said_so(tmp_path):
    with pytest.raises(cost.CostError, match=r"run\.json"):
        cost.measure([tmp_path])


def test_two_runs_of_the_same_files_are_compared(make):
    def other(item):
        if item.kind == "speed" and item.timing:
            percent = item.timing.percent_of_baseline + 0.75
            timing = item.timing.model_copy(update={"percent_of_baseline": percent})
            return item.model_copy(update={"timing": timing})
        return item

    def failed(item):
        return item.model_copy(update={"verdict": Verdict.WRONG}) if "n=1," in item.name else item

    every = dict(zip("abcdef", (3, 4, 5, 6, 7, 8), strict=True))
    runs = [make("first", every).root, make("second", every, other).root]
    (same,) = cost.measure(runs).agreement
    assert (same.compared, same.verdicts_changed) == (6, [])
    assert same.most_percent == pytest.approx(0.75)
    (differs,) = cost.measure([runs[0], make("third", every, failed).root]).agreement
    assert len(differs.verdicts_changed) >= 6


def test_other_files_are_not_compared(make):
    every = dict(zip("abcdef", (3, 4, 5, 6, 7, 8), strict=True))
    runs = [make("first", every), make("second", every)]
    for path in runs[1].students.glob("*/*/results.json"):
        digest = record("h200.json").labs[0].exercises[0].file_sha256
        path.write_text(path.read_text().replace(digest, "0" * 64))
    assert not cost.measure([run.root for run in runs]).agreement


def test_the_command_shows_and_records(make, tmp_path):
    every = dict(zip("abcdef", (3, 4, 5, 6, 7, 8), strict=True))
    folder = make("run", every, gpus="0").root
    done = CliRunner().invoke(main, ["class-cost", str(folder), "--record", str(tmp_path / "cost.json")])
    assert done.exit_code == 0, done.output
    assert "| 6 | 1 x GPU | 6 | 1.00 | 8.0 | 1.00 | 80.0 | lab1 60.0, 60.0, 60.0 |" in done.output
    written = cost.CostRecord.model_validate_json((tmp_path / "cost.json").read_bytes())
    assert written == cost.measure([folder])
    assert CliRunner().invoke(main, ["class-cost", str(tmp_path)]).exit_code == 2

"""A class run's folder as `make class` leaves it, made of models and of stored results; nothing is graded."""

import hashlib
from pathlib import Path

from grader.classroom import records
from grader.classroom.platforms.merge import scored
from grader.classroom.records import (
    Drift,
    ExerciseDrift,
    Intake,
    KnownResult,
    LeftOut,
    RunRecord,
    SelfTest,
    State,
)
from grader.classroom.run_folder import RunFolder
from grader.course.spec import Reason, Verdict
from grader.results import points
from grader.results.findings import FirstWrong
from grader.results.models import Results
from grader.tests.helpers.result_fakes import record, with_items

LABS = {"lab1_elementwise_add": "1", "lab2_online_softmax": "2"}
CAPSTONE = "gpu-programming"
FIRST_WRONG = FirstWrong(output="out", index=(3,), yours="0", expected="1")


def lab_of(results: Results, folder: str, change=lambda item: item) -> Results:
    """One lab of a run, each item as `change` gives it back, scored again."""
    labs = tuple(lab for lab in results.labs if lab.folder == folder)
    return scored(with_items(results.model_copy(update={"labs": labs}), change))


def wrong(item, cause="the last, partial block was never written"):
    """The item as a wrong answer has it."""
    if item.verdict is not Verdict.PASS or item.kind != "correctness" or "n=1," in item.name:
        return item
    facts = {
        "verdict": Verdict.WRONG,
        "reason": Reason.UNWRITTEN,
        "points": 0.0,
        "where": FIRST_WRONG.words,
        "first_wrong": FIRST_WRONG,
    }
    return item.model_copy(update={**facts, "cause": cause})


class FakeClass:
    """Writes a run folder, student by student."""

    def __init__(self, folder: Path, units=LABS):
        self.folder = RunFolder(folder)
        full = record("cpu.json")
        titles = {lab.folder: lab for lab in full.labs}
        self.units = [
            records.Unit(
                name=name,
                lab=lab,
                title=titles[name].title if name in titles else "capstone",
                max_points=titles[name].max_points if name in titles else 200.0,
                exercises={
                    exercise.name: points.rounded(sum(item.max_points for item in exercise.items))
                    for exercise in (titles[name].exercises if name in titles else ())
                },
            )
            for name, lab in units.items()
        ]
        self.students: list[str] = []
        self.unknown: list[str] = []

    def add(self, student: str, handed_in="2026-10-05T12:00:00+00:00", line=None, **facts) -> None:
        """The intake of one student; `line` is the roster's, None for somebody who is not on it."""
        self.students.append(student)
        if line is None:
            self.unknown.append(student)
        facts = {"handed_in_by": "date of the commit" if handed_in else "", "sources": [student], **facts}
        intake = Intake(
            id=student, on_roster=line is not None, roster=line or {}, kind="folder", handed_in=handed_in,
            **facts,
        )  # fmt: skip
        records.write(self.folder.student(student).intake, intake)

    def grade(self, student: str, unit: str, results: Results | None, state=State.GRADED, what="") -> None:
        """task.json, and results.json where there is one."""
        place = self.folder.student(student).unit(unit)
        digest = None
        if results is not None:
            data = results.model_dump_json(indent=1).encode()
            place.results.parent.mkdir(parents=True, exist_ok=True)
            place.results.write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
        records.write(
            place.task,
            records.TaskRecord(
                student=student,
                unit=unit,
                state=state,
                what=what,
                fingerprint="f",
                attempt=1,
                exit_code=0,
                seconds=12.0,
                results_sha256=digest,
            ),
        )

    def finish(self, held=True, tier="cpu") -> Path:
        """run.json, selftest.json, drift.json; the folder."""
        records.write(
            self.folder.run,
            RunRecord(
                grader="1.0",
                grader_sha256="a" * 64,
                began="2026-10-06T08:00:00+00:00",
                finished="2026-10-06T09:00:00+00:00",
                tier=tier,
                seed_commitment="b" * 64,
                units=self.units,
                students=sorted(self.students),
                unknown=self.unknown,
                machines=[record("cpu.json").machine],
            ),
        )
        known = KnownResult(
            name="known_wrong", expected=["WRONG"], got="WRONG" if held else "PASS", held=held, seconds=1
        )
        records.write(
            self.folder.selftest, SelfTest(date="2026-10-06T08:00:00+00:00", held=held, known=[known])
        )
        exercise = ExerciseDrift(
            unit="lab1_elementwise_add", exercise="elementwise_add", compared=1, verdicts_changed=[],
            most_points=0.0, most_percent=None,
        )  # fmt: skip
        records.write(self.folder.drift, Drift(regraded=["ada/lab1_elementwise_add"], exercises=[exercise]))
        return self.folder.root


def small_class(folder: Path) -> Path:
    """Seven students, each another case: right, wrong, missing, refused, timed out, at fault, unknown."""
    one, two = LABS
    full, fake = record("cpu.json"), FakeClass(folder)
    hostile = '=HYPERLINK("http://x","<script>alert(1)</script>")'
    canvas = {
        "Student": "Lovelace, Ada",
        "ID": "101",
        "SIS User ID": "s1",
        "SIS Login ID": "ada",
        "Section": "GPU, A",
        "elementwise add (77)": "",
        "Email address": "ada@example.org",
        "nickname": "<b>vec</b>",
    }

    def line(name: str, number: int, shown: str) -> dict[str, str]:
        ids = {
            "ID": str(number),
            "SIS User ID": f"s{number}",
            "SIS Login ID": name,
            "Email address": f"{name}@example.org",
        }
        return {**canvas, **ids, "Student": shown, "nickname": ""}

    shown = {"bob": hostile, "cyd": "Çelik, Cyd", "dan": "Dan", "eve": "Eve", "fay": "Fay"}
    lines = {name: line(name, 102 + k, words) for k, (name, words) in enumerate(shown.items())}
    left_out = [LeftOut(found="<i>x</i>.py", why="a link", unit=one)]
    fake.add("ada", line=canvas)
    fake.add("bob", "2026-10-08T12:00:00+00:00", lines["bob"], left_out=left_out)
    fake.add("cyd", None, lines["cyd"])
    fake.add("dan", line=lines["dan"], problem="the archive is damaged")
    fake.add("eve", line=lines["eve"])
    fake.add("fay", line=lines["fay"])
    fake.add("gus", line=None)
    fake.grade("ada", one, lab_of(full, one))
    fake.grade("ada", two, lab_of(full, two))
    fake.grade("bob", one, lab_of(full, one, wrong))
    fake.grade("bob", two, lab_of(full, two))
    for unit in (one, two):
        fake.grade("cyd", unit, None, State.MISSING, "nothing was handed in")
        fake.grade("dan", unit, None, State.REFUSED, "the archive is damaged")
    fake.grade("eve", one, None, State.TIMEOUT, "not done after 3600 s")
    fake.grade("eve", two, None, State.FAULT, "the machine was lost")
    fake.grade("fay", one, lab_of(record("h200.json"), one))
    fake.grade("gus", one, lab_of(full, one))
    return fake.finish()

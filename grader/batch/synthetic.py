"""A class of made-up students with known verdicts: solutions, wrong answers, cheats, faults, bad archives.

`make` writes submissions/, roster.csv and expected.json; `check` holds a graded run folder against the last.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader import catalog, policy, specimens
from grader.batch import models
from grader.batch.layout import RunFolder
from grader.batch.models import State, TaskRecord
from grader.intake import read_file
from grader.questions import CORRECTNESS
from grader.results import Results
from grader.spec import Verdict

POOLS = {
    "wrong": ("solutions/lab*/wrong/*", "solutions/lab*/variants/*"),
    "cheat": ("grader/tests/cheats/*",),
    "fault": ("grader/tests/faults/*",),
}
LINKS = ("d10_link_as_submission",)  # a link comes in by a container of its own here
DATE = "2026-01-15T12:00:00+00:00"  # of commits and archives, so that a class is the same every time


@dataclass(frozen=True)
class HandIn:
    """What one student hands in, below labs/, and what must come of it."""

    about: str
    files: dict[str, bytes] = field(default_factory=dict)
    expected: dict[str, dict] = field(default_factory=dict)  # by unit: state, and verdicts by function


def make(folder: Path, count: int, seed: int = 0, slow: bool = False) -> None:
    """A class of `count` students in `folder`; `slow` takes in those that end at a limit, a minute a case."""
    submissions = folder / "submissions"
    submissions.mkdir(parents=True)
    chosen = random.Random(seed)
    expected, roster = {}, []
    containers = itertools.cycle(CONTAINERS)
    for number, hand_in in enumerate(itertools.islice(_hand_ins(chosen, slow), count), 1):
        student, name = f"student-{number:03}", f"Student {_letters(number)}"
        roster.append({"id": student, "name": name, "canvas id": str(10_000 + number)})
        expected[student] = {"about": hand_in.about, "units": hand_in.expected}
        how = BROKEN.get(hand_in.about) or next(containers)
        expected[student]["container"] = how.__name__.removeprefix("_")
        how(submissions, student, name, str(10_000 + number), hand_in.files)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "name", "canvas id"])
    writer.writeheader()
    writer.writerows(roster)
    (folder / "roster.csv").write_text(text.getvalue(), "utf-8")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), "utf-8")


def check(folder: Path, out: Path) -> list[str]:
    """What in the run folder `out` is not as expected, a line each; verdicts of the CPU tier."""
    wrong = []
    run = RunFolder(out)
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    units = [unit.name for unit in models.read(run.run, models.RunRecord).units]
    for student, told in expected.items():
        for unit in units:
            wanted = told["units"].get(unit, {"state": "MISSING"})
            place = run.student(student).unit(unit)
            if not place.task.exists():
                wrong.append(f"{student}/{unit}: no record")
                continue
            record = models.read(place.task, TaskRecord)
            about = f"{student}/{unit} ({told['about']}, {told['container']})"
            if record.state.value != wanted["state"]:
                wrong.append(f"{about}: {record.state.value} {record.what}, not {wanted['state']}")
            elif record.state is State.GRADED:
                results = Results.model_validate_json(place.results.read_bytes())
                wrong += [f"{about}: {words}" for words in _unlike(results, wanted["verdicts"])]
    return wrong


def _unlike(results: Results, verdicts: dict[str, list[str]]) -> Iterator[str]:
    for function, wanted in verdicts.items():
        items = [
            item
            for lab in results.labs
            for exercise in lab.exercises
            if exercise.name == function
            for item in exercise.items
            if item.kind == CORRECTNESS and item.verdict is not Verdict.NOT_GRADED
        ]
        first = next((item for item in items if item.verdict is not Verdict.PASS), None)
        got = "PASS" if first is None else first.verdict.value + (f"/{first.reason}" if first.reason else "")
        if not items or got not in wanted:
            yield f"{function} got {got if items else 'nothing'}, not {' or '.join(wanted)}"


def _hand_ins(chosen: random.Random, slow: bool) -> Iterator[HandIn]:
    """One of each kind in turn, without end; each kind shuffled, and begun again where it is used up."""
    entries = catalog.find()
    pools = [[_of(one, entries) for one in _specimens(patterns, slow)] for patterns in POOLS.values()]
    pools += [list(_solutions(entries)), [_broken(name, entries) for name in BROKEN]]
    for pool in pools:
        chosen.shuffle(pool)
    for turn in itertools.count():
        for pool in pools:
            yield pool[turn % len(pool)]


def _specimens(patterns: tuple[str, ...], slow: bool) -> list[specimens.Specimen]:
    """Those that the CPU tier can tell, by correctness alone."""
    return [
        one
        for one in specimens.find(*patterns)
        if one.where != "GPU"
        and one.kind == CORRECTNESS
        and one.path.name not in LINKS
        and (slow or "TIMEOUT" not in one.screened)
    ]


def _of(one: specimens.Specimen, entries: list[catalog.Entry]) -> HandIn:
    homes = [
        (entry, exercise)
        for entry in entries
        for exercise in entry.lab.exercises
        if exercise.name == one.functions[0]
    ]
    entry, exercise = ([home for home in homes if home[0].folder.name in one.path.parts] or homes)[0]
    unit = entry.folder.name
    files = {f"{unit}/{exercise.file}": one.file.read_bytes()}
    if one.path.is_dir():  # what lies beside it must not be collected
        for path in one.path.rglob("*"):
            if path.is_file() and not path.is_symlink() and path != one.file:
                files.setdefault(f"{unit}/{path.relative_to(one.path).as_posix()}", path.read_bytes())
    # What line one of a fault says is meant without the screen, which a class has.
    refused = "faults" in one.path.parts and _screened(one, entry, exercise)
    verdicts = {function: ["POLICY"] if refused else list(one.screened) for function in one.functions}
    return HandIn(one.name, files, {unit: {"state": "GRADED", "verdicts": verdicts}})


def _screened(one: specimens.Specimen, entry: catalog.Entry, exercise) -> bool:
    if read_file(one.file, exercise):
        return False  # decided before the screen reads it
    return policy.screen(one.file.read_text("utf-8-sig"), entry.lab, exercise) is not None


def _solutions(entries: list[catalog.Entry]) -> Iterator[HandIn]:
    """Each lab alone, all of them together, and an untouched skeleton."""
    everything, verdicts = {}, {}
    for entry in entries:
        unit, source = entry.folder.name, catalog.ROOT / "solutions"
        names = dict.fromkeys(exercise.file for exercise in entry.lab.exercises)
        files = {f"{unit}/{name}": (source / unit / name).read_bytes() for name in names}
        passed = {exercise.name: ["PASS"] for exercise in entry.lab.exercises}
        graded = {unit: {"state": "GRADED", "verdicts": passed}}
        yield HandIn(f"solution of {unit}", files, graded)
        everything, verdicts = everything | files, verdicts | graded
        if entry.number == 1:
            skeleton = {f"{unit}/{name}": (entry.folder / name).read_bytes() for name in names}
            open_ones = {exercise.name: ["NOT_STARTED"] for exercise in entry.lab.exercises}
            yield HandIn("skeleton", skeleton, {unit: {"state": "GRADED", "verdicts": open_ones}})
    yield HandIn("all solutions", everything, verdicts)


def _broken(name: str, entries: list[catalog.Entry]) -> HandIn:
    """A good solution in a container that cannot be opened, or holds something else."""
    entry = entries[0]
    unit, file = entry.folder.name, entry.lab.exercises[0].file
    files = {f"{unit}/{file}": (catalog.ROOT / "solutions" / unit / file).read_bytes()}
    if name in ("nothing", "empty folder"):
        return HandIn(name, files)
    everywhere = [one.folder.name for one in entries] if name.startswith("archive") else [unit]
    return HandIn(name, files, {one: {"state": "REFUSED"} for one in everywhere})


def _folder(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student, files)


def _flat_folder(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student, _flat(files))


def _zip(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", {f"my work/labs/{name}": data for name, data in files.items()})


def _flat_zip(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", _flat(files))


def _git(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    folder = root / student
    _write(folder / "labs", files)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE,
    }  # fmt: skip
    who = ["-c", "user.name=student", "-c", "user.email=student@example.org", "-c", "core.autocrlf=false"]
    for words in (["init", "-q"], ["add", "-Af"], [*who, "commit", "-qm", "my work"]):
        subprocess.run(["git", *words], cwd=folder, env=environment, check=True)


def _canvas(root: Path, _student, name: str, number: str, files: dict[str, bytes]) -> None:
    for file, data in _flat(files).items():
        (root / f"{name.lower().replace(' ', '')}_{number}_{900_000 + int(number)}_{file}").write_bytes(data)


def _moodle(root: Path, _student, name: str, number: str, files: dict[str, bytes]) -> None:
    _pack(root / f"{name}_{number}_assignsubmission_file_" / "work.zip", files)


def _truncated(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _pack(root / f"{student}.zip", files)
    path = root / f"{student}.zip"
    path.write_bytes(path.read_bytes()[:-30])


def _encrypted(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    path = root / f"{student}.zip"
    _pack(path, files)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the bit that says so, in both headers
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 4)
    path.write_bytes(data)


def _link(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    name = next(iter(files))
    link = zipfile.ZipInfo(name)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(root / f"{student}.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")


def _two_of_one_name(root: Path, student: str, _name, _number, files: dict[str, bytes]) -> None:
    _write(root / student / "a", files)
    _write(root / student / "b", {name: data + b"\n# again\n" for name, data in files.items()})


def _empty(root: Path, student: str, *_) -> None:
    (root / student).mkdir()


def _nothing(*_) -> None:
    """A student of the roster who hands nothing in."""


CONTAINERS = (_folder, _zip, _git, _canvas, _moodle, _flat_folder, _flat_zip)
BROKEN = {
    "archive truncated": _truncated,
    "archive encrypted": _encrypted,
    "link": _link,
    "two of one name": _two_of_one_name,
    "empty folder": _empty,
    "nothing": _nothing,
}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _pack(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 15, 12, 0, 0)), data)


def _flat(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name.split("/")[-1]: data for name, data in files.items()}


def _letters(number: int) -> str:
    """A surname of letters: 1 is A, 27 is AA."""
    text = ""
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(65 + digit) + text
    return text

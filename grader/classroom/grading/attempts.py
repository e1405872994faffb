"""The attempts at one unit of one student: where each is kept, and which one counts.

The first attempt is graded in the unit's folder. Before a later one begins, the unit's four files are copied
to `attempts/<number>/`; the later one is graded in its own folder there. Then one of them counts, and the
unit's folder has a copy of it: readers of a run folder need nothing else.

The rule. Other files are a new hand-in: the latest counts. The same files are a regrade: the better attempt
counts, so a regrade never lowers a grade, unless the command was told that the latest counts. Attempts with
different items, points or open points cannot be compared: the latest counts. Rescored points always count.
Where the course lets the best hand-in count, the better attempt counts with other files as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import fingerprint
from grader.classroom.records import Receipt, State, TaskRecord
from grader.classroom.run_folder import UnitFolder
from grader.results import points, reading, scoring
from grader.results.models import Results
from grader.system.files import replace

# Which attempt counts: of those at the same files the better or the latest; or the best of all hand-ins.
BETTER, LATEST, BEST = "better", "latest", "best"
FINAL = (State.GRADED, State.TIMEOUT)
REQUESTED = "regrading was requested"


def record_of(place: UnitFolder) -> TaskRecord | None:
    """Return the record in a folder, None if there is none or it cannot be read."""
    try:
        return records.read(place.task, TaskRecord)
    except (FileNotFoundError, ValueError):
        return None


def receipt_of(place: UnitFolder) -> Receipt | None:
    """Return the receipt in a folder, None if there is none or it cannot be read."""
    try:
        return records.read(place.receipt, Receipt)
    except (FileNotFoundError, ValueError):
        return None


def newest(unit: UnitFolder) -> TaskRecord | None:
    """Return the record of the attempt with the highest number, graded or not."""
    found = [record_of(unit), *(record_of(unit.attempt(number)) for number in unit.numbers())]
    return max((one for one in found if one), key=lambda one: one.attempt, default=None)


def with_fingerprint(unit: UnitFolder, fingerprint_of: Callable[[int], str]) -> TaskRecord | None:
    """Return the finished attempt that was graded from exactly these inputs, None if there is none."""
    places = [unit, *(unit.attempt(number) for number in unit.numbers())]
    for place in places:
        record = record_of(place)
        if record and record.fingerprint == fingerprint_of(record.attempt) and intact(place, record):
            return record
    return None


def place_of(unit: UnitFolder, number: int) -> UnitFolder:
    """Return the folder of an attempt, also of one that is to be graded."""
    own, counted = unit.attempt(number), record_of(unit)
    if own.task.exists() or (number > 1 and (counted is None or counted.attempt != number)):
        return own
    return unit


def before(unit: UnitFolder, number: int) -> UnitFolder | None:
    """Return the folder of the last attempt before `number` that has results, None if there is none."""
    earlier = [unit.attempt(one) for one in unit.numbers() if one < number]
    return next((place for place in reversed(earlier) if place.results.exists()), None)


def intact(place: UnitFolder, record: TaskRecord) -> bool:
    """Whether a finished attempt has the results that its record names."""
    if record.state is not State.GRADED:
        return record.state in FINAL
    return place.results.exists() and sha256(place.results) == record.results_sha256


def archive(unit: UnitFolder) -> None:
    """Copy the finished attempt in the unit's folder to a folder of its own, unless it has one."""
    record = record_of(unit)
    if record is None or not intact(unit, record) or unit.attempt(record.attempt).task.exists():
        return
    alone = record.model_copy(update={"latest": None, "counts": ""})
    _copy(unit, unit.attempt(record.attempt), alone)


def settle(unit: UnitFolder, rule: str) -> None:
    """Decide which of the finished attempts counts, and copy it to the unit's folder.

    Interrupted at any point, it can be repeated. What was decided once stays so under the rule `better`.
    """
    for number in unit.numbers():
        place, counted = unit.attempt(number), record_of(unit)
        record = record_of(place)
        if (
            record is None
            or record.what == REQUESTED
            or (record.state in FINAL and not intact(place, record))
        ):
            continue
        settled = counted is not None and number <= (counted.latest or counted.attempt)
        if settled and counted is not None:
            damaged = number == counted.attempt and not _same(unit, counted, record)
            overruled = rule == LATEST and number == counted.latest
            if damaged:
                _copy(
                    place,
                    unit,
                    record.model_copy(update={"latest": counted.latest, "counts": counted.counts}),
                )
            if not overruled:
                continue
        _settle_one(unit, number, counted, record, rule)


def share(unit: UnitFolder, partner: UnitFolder, files: str) -> None:
    """Give a partner the attempt that counts, or the latest one at these files; what was there is kept."""
    archive(partner)
    places = [unit, *(unit.attempt(number) for number in reversed(unit.numbers()))]
    for place in places:
        record = record_of(place)
        if record and record.state in FINAL and _files(place, record) == files and intact(place, record):
            if record_of(partner) != record or not intact(partner, record):
                _copy(place, partner, record)
            return


def withdraw(unit: UnitFolder, files: Collection[str]) -> None:
    """Let the best attempt at these files count, if the one that counts is at files that are gone."""
    counted = record_of(unit)
    if counted is None or _files(unit, counted) in files:
        return
    found = []
    for number in unit.numbers():
        place, record = unit.attempt(number), record_of(unit.attempt(number))
        if (
            record
            and record.state is State.GRADED
            and _files(place, record) in files
            and intact(place, record)
        ):
            found.append((reading.read(place.results).points, number, record))
    if found:
        _, number, record = max(found, key=lambda one: one[:2])
        why = f"attempt {number} counts: the best of what is handed in now"
        _copy(unit.attempt(number), unit, record.model_copy(update={"counts": why}))


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_sha256(files: dict[str, str]) -> str:
    """Return one hash of the hashes of the graded files."""
    return fingerprint.of_hashes(files)


def _settle_one(
    unit: UnitFolder, number: int, counted: TaskRecord | None, record: TaskRecord, rule: str
) -> None:
    counts, why = _decide(unit, number, counted, record, rule)
    if counts:
        _copy(unit.attempt(number), unit, record.model_copy(update={"counts": why}))
    elif counted is not None:
        records.write(unit.task, counted.model_copy(update={"latest": number, "counts": why}))


def _decide(
    unit: UnitFolder, number: int, counted: TaskRecord | None, record: TaskRecord, rule: str
) -> tuple[bool, str]:
    """Return whether attempt `number` counts instead of the one that counts now, and why."""
    place = unit.attempt(number)
    if counted is None or counted.state not in FINAL:
        return True, ""
    if record.measured_in is not None:
        measured = f"measured in attempt {record.measured_in}, with the points of now"
        return True, f"attempt {number} counts: {measured}"
    if _files(unit, counted) != _files(place, record) and rule != BEST:
        return True, f"attempt {number} counts: it is a new hand-in"
    if record.state is State.FAULT:
        return False, f"attempt {counted.attempt} counts: attempt {number} ended with a fault"
    if rule == LATEST:
        return True, f"attempt {number} counts: the course lets the latest regrade count"
    if record.state is State.TIMEOUT or counted.state is State.TIMEOUT:
        better = record.state is State.GRADED
        return better, f"attempt {number if better else counted.attempt} counts: the other one timed out"
    before, after = reading.read(unit.results), reading.read(place.results)
    if not comparable(before, after):
        return True, f"attempt {number} counts: it graded other items than attempt {counted.attempt}"
    said = f"{points.text(after.points)} points in attempt {number}, {points.text(before.points)} in attempt"
    if after.points < before.points:
        why = "the best attempt counts" if rule == BEST else "a regrade lowers no grade"
        return False, f"attempt {counted.attempt} counts: {said} {counted.attempt}; {why}"
    return True, f"attempt {number} counts: {said} {counted.attempt}"


def comparable(before: Results, after: Results) -> bool:
    """Whether two results have the same items with the same points, and the same of them graded."""
    asked = [
        {item.id: (item.max_points, scoring.is_open(item)) for item in one.items} for one in (before, after)
    ]
    return asked[0] == asked[1]


def _files(place: UnitFolder, record: TaskRecord) -> str | None:
    """Return the hash of the files of an attempt; None if nothing says which they were."""
    if record.files_sha256:
        return record.files_sha256
    receipt = receipt_of(place)
    return files_sha256(receipt.files) if receipt else None


def _same(unit: UnitFolder, counted: TaskRecord, record: TaskRecord) -> bool:
    """Whether the unit's folder still has the attempt that its record names."""
    told = {"latest": None, "counts": ""}
    if counted.model_copy(update=told) != record.model_copy(update=told):
        return False
    return record.state not in FINAL or intact(unit, counted)


def _copy(source: UnitFolder, target: UnitFolder, record: TaskRecord) -> None:
    """Copy the files of an attempt, and write its record last."""
    target.root.mkdir(parents=True, exist_ok=True)
    for one, other in (
        (source.log, target.log),
        (source.results, target.results),
        (source.receipt, target.receipt),
    ):
        if one.exists():
            replace(other, one.read_bytes())
        else:
            other.unlink(missing_ok=True)
    records.write(target.task, record)

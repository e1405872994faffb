"""`rescore`: give every graded unit the points of now, as an attempt of its own; nothing is graded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from grader.classroom import records
from grader.classroom.grading import (
    attempts,
    changes,
    fingerprint,
    keyword_filter,
    receipts,
    rescoring,
    run_secret,
)
from grader.classroom.grading.rescoring import Items, RescoreError
from grader.classroom.grading.run_lock import Lock
from grader.classroom.grading.run_secret import Keys
from grader.classroom.intake import expected_files
from grader.classroom.records import Receipt, RunRecord, State, TaskRecord, Unit
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.results import reading
from grader.results.models import Results
from grader.system.files import read_bytes, replace

MOST_TOLD = 8  # reasons for a refusal


@dataclass(frozen=True)
class Rescored:
    """One unit of one student, with the points of now."""

    name: str
    blind: bool
    place: UnitFolder
    unit: Unit
    record: TaskRecord
    receipt: Receipt
    before: Results
    after: Results


def rescore(out: Path, hidden: Path | None, console: Console, *, write: bool = True) -> None:
    """Compute all points again, print what changes, and write it unless `write` is false.

    Raises RescoreError, before anything is written, if the points of any unit cannot be computed again;
    BusyError if a command is using the folder.
    """
    folder = RunFolder(out.resolve())
    if not folder.run.is_file():
        raise RescoreError(f"{folder.run}: no class run in this folder")
    with Lock(folder.lock):
        try:
            run = records.read(folder.run, RunRecord)
            if not folder.secret.exists():
                raise RescoreError(f"{folder.secret} is missing: put it back from a copy")
            keys = run_secret.load(folder, None, run.seal_commitment)
        except ValueError as error:
            raise RescoreError(str(error)) from None
        units = {one.unit.name: one.unit for one in expected_files.units()}
        found = _Rescore(folder, run, units, hidden, keys.seals).all()
        if write:
            for one in found:
                _write(one, keys)
            now = [units.get(unit.name, unit) for unit in run.units]
            records.write(folder.run, run.model_copy(update={"units": now}))
    _show(found, console, write)


class _Rescore:
    """Computes the points of all units of a run."""

    def __init__(
        self, folder: RunFolder, run: RunRecord, units: dict[str, Unit], hidden: Path | None, key: bytes
    ):
        self._folder, self._run, self._units, self._hidden, self._key = folder, run, units, hidden, key
        self._hidden_sha256 = hashlib.sha256(read_bytes(hidden)).hexdigest() if hidden else None
        self._items: dict[tuple[str, str | None, bool], Items] = {}

    def all(self) -> list[Rescored]:
        """Return the units whose points may have changed. Raises RescoreError with the reasons against it."""
        found, problems = [], []
        for student in self._run.students:
            for unit in self._run.units:
                for blind in (False, True):
                    name = f"{student}/{unit.name}" + ("/again" if blind else "")
                    place = self._folder.student(student).unit(unit.name, blind)
                    try:
                        one = self._one(name, place, unit.name, blind)
                    except (RescoreError, OSError, ValueError) as error:
                        problems.append(f"{name}: {error}")
                        continue
                    found += [one] if one else []
        if problems:
            more = [f"and {len(problems) - MOST_TOLD} more"] if len(problems) > MOST_TOLD else []
            raise RescoreError("\n".join(["nothing was written:", *problems[:MOST_TOLD], *more]))
        return found

    def _one(self, name: str, place: UnitFolder, unit: str, blind: bool) -> Rescored | None:
        """Return a unit with its points of now; None if it is not graded, or has the points of now."""
        record, last = attempts.record_of(place), attempts.newest(place)
        if record is None or last is None or record.state is not State.GRADED:
            return None
        if not attempts.intact(place, record):
            raise RescoreError("results.json is not the one that was graded; run make class again")
        if not receipts.fits(place, self._key):  # the new receipt copies from it, and has a new seal
            raise RescoreError("receipt.json was changed after it was written; run make class again")
        if last.state is State.FAULT:
            raise RescoreError(f"attempt {last.attempt} is not finished; run make class first")
        receipt = records.read(place.receipt, Receipt)
        if fingerprint.same_lab(receipt):
            return None
        if receipt.measures_sha256 not in ("", fingerprint.measures(unit)):
            raise RescoreError("the lab has changed in more than its points; make class grades it again")
        before = reading.read(place.results)
        after = rescoring.rescored(before, self._asked(unit, receipt))
        return Rescored(name, blind, place, self._units[unit], record, receipt, before, after)

    def _asked(self, unit: str, receipt: Receipt) -> Items:
        """Return the items that the labs of now ask for, as the graded command asked for them."""
        if unit not in self._units:
            raise RescoreError("the course has no such lab any more")
        if receipt.hidden_sha256 and receipt.hidden_sha256 != self._hidden_sha256:
            raise RescoreError("graded with hidden cases: --hidden must name the same file")
        key = (unit, receipt.keyword, bool(receipt.hidden_sha256))
        if key not in self._items:
            hidden = self._hidden if receipt.hidden_sha256 else None
            items = keyword_filter.items(receipt.keyword or "", [self._units[unit]], hidden)
            self._items[key] = rescoring.by_id(items)
        return self._items[key]


def _write(one: Rescored, keys: Keys) -> None:
    """Write an attempt with the new points, its record last, and let it count."""
    last = attempts.newest(one.place)
    number, measured = (last.attempt if last else 1) + 1, one.receipt.measured_in or one.receipt.attempt
    attempts.archive(one.place)
    place = one.place.attempt(number)
    place.root.mkdir(parents=True, exist_ok=True)
    data = one.after.model_dump_json(indent=1).encode()
    digest = hashlib.sha256(data).hexdigest()
    replace(place.log, f"The points were computed again from the measurements of attempt {measured}.\n")
    replace(place.results, data)
    receipt = one.receipt.model_copy(
        update={
            "unit": one.unit,
            "attempt": number,
            "measured_in": measured,
            "lab_sha256": fingerprint.lab(one.unit.name),
            "points": one.after.points,
            "results_sha256": digest,
            "rounds_sha256": reading.measured_sha256(data),
        }
    )
    records.write(place.receipt, run_secret.sealed(keys, receipt))
    # What measured is as it was then: if it has changed since, make class grades the unit again.
    made = fingerprint.of_attempt(
        receipt.files, receipt.grader_sha256, receipt.measures_sha256, receipt.tier, receipt.keyword,
        receipt.hidden_sha256, number,
    )  # fmt: skip
    update = {
        "attempt": number, "measured_in": measured, "latest": None, "counts": "", "fingerprint": made,
        "results_sha256": digest,
    }  # fmt: skip
    records.write(place.task, one.record.model_copy(update=update))
    attempts.settle(one.place, attempts.BETTER)


def _show(found: list[Rescored], console: Console, written: bool) -> None:
    """Print the units whose points or verdicts change, and how many do."""
    rows = [(one.name, changes.between(one.before, one.after)) for one in found if not one.blind]
    changed = [(name, all_) for name, all_ in rows if any(one.differs for one in all_)]
    totals = [all_[-1] for _, all_ in changed]
    higher, lower = (sum(sign * (row.after - row.before) > 0 for row in totals) for sign in (1, -1))
    if changed:
        console.print(changes.table(changed), highlight=False, markup=False)
    console.print(
        f"{len(rows)} graded with other points or thresholds: {higher} higher, {lower} lower, "
        f"{len(rows) - higher - lower} the same" + ("" if written else "; nothing was written"),
        highlight=False, markup=False,
    )  # fmt: skip

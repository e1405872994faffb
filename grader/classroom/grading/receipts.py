"""Write receipts: what was graded, with what, and from which seed, so that it can be repeated."""

from __future__ import annotations

import hashlib
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import fingerprint, run_secret
from grader.classroom.grading.grade_unit import Task
from grader.classroom.grading.run_secret import Keys
from grader.classroom.records import Receipt
from grader.classroom.run_folder import UnitFolder
from grader.results import reading
from grader.results.models import MOST_BYTES
from grader.system.files import read_bytes


def write(task: Task, files: dict[str, str], hidden_sha256: str | None, keys: Keys) -> Receipt:
    """Write the receipt of a graded task beside its results, and return it."""
    place = UnitFolder(Path(task.folder))
    data = place.results.read_bytes()
    results = reading.parse(data)
    receipt = Receipt(
        student=task.student,
        unit=task.unit,
        attempt=task.attempt,
        blind=task.blind,
        date=results.date,
        grader=results.grader,
        grader_sha256=fingerprint.grader(),
        lab_sha256=fingerprint.lab(task.unit.name),
        measures_sha256=fingerprint.measures(task.unit.name),
        hidden_sha256=hidden_sha256,
        files=files,
        tier=results.tier,
        keyword=task.keyword,
        arch=results.arch,
        seed=results.seed,
        seed_commitment=run_secret.commitment(keys.seeds),
        machine=results.machine,
        assurance=results.assurance,
        points=results.points,
        results_sha256=hashlib.sha256(data).hexdigest(),
        rounds_sha256=reading.measured_sha256(data),
    )
    receipt = run_secret.sealed(keys, receipt)
    records.write(place.receipt, receipt)
    return receipt


def fits(place: UnitFolder, key: bytes | None) -> bool:
    """Whether the receipt in a folder, if there is one, is of the results there and was not changed.

    Without the key of the seals only the hash of the results is compared.
    """
    if not place.receipt.exists():
        return True  # an interrupted command; the next one writes it
    try:
        receipt = records.read(place.receipt, Receipt)
        digest = hashlib.sha256(read_bytes(place.results, MOST_BYTES)).hexdigest()
    except (OSError, ValueError):
        return False
    sealed = key is None or not receipt.seal or run_secret.seal(key, receipt) == receipt.seal
    return sealed and receipt.results_sha256 == digest


def set_aside(unit: UnitFolder, key: bytes) -> bool:
    """Move results that are not those of their receipt to `changed/`, so that they are graded again.

    Returns whether there were such results, of any attempt.
    """
    wrong = [place for place in (unit, *unit.every_attempt()) if not fits(place, key)]
    for place in wrong:
        place.changed.mkdir(exist_ok=True)
        for file in (place.results, place.receipt):
            if file.exists():
                file.replace(place.changed / file.name)
    return bool(wrong)

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

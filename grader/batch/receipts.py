"""Receipts: what was graded, with what, and from which seed, for whoever wants to see it again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from grader.batch import fingerprint, models, seeds
from grader.batch.layout import UnitFolder
from grader.batch.models import Receipt
from grader.batch.work import Task
from grader.results import Results


def write(task: Task, files: dict[str, str], hidden_sha256: str | None, secret: bytes) -> Receipt:
    """Put the receipt of a graded task beside its results."""
    place = UnitFolder(Path(task.folder))
    data = place.results.read_bytes()
    results = Results.model_validate_json(data)
    receipt = Receipt(
        student=task.student,
        unit=task.unit,
        attempt=task.attempt,
        blind=task.blind,
        date=results.date,
        grader=results.grader,
        grader_sha256=fingerprint.grader(),
        lab_sha256=fingerprint.lab(task.unit.name),
        hidden_sha256=hidden_sha256,
        files=files,
        tier=results.tier,
        keyword=task.keyword,
        arch=results.arch,
        seed=results.seed,
        seed_commitment=seeds.commitment(secret),
        machine=results.machine,
        assurance=results.assurance,
        points=results.points,
        results_sha256=hashlib.sha256(data).hexdigest(),
        rounds_sha256=rounds(results),
    )
    receipt = receipt.model_copy(update={"seal": seeds.seal(secret, receipt)})
    models.write(place.receipt, receipt)
    return receipt


def rounds(results: Results) -> str:
    """One hash of the raw rounds and all else that was measured."""
    measured = {
        f"{lab.folder}/{item.id}": item.figures
        for lab in results.labs
        for exercise in lab.exercises
        for item in exercise.items
        if item.figures
    }
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()

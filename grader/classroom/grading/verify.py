"""Repeat the grading that a receipt describes, from its seed, and compare both gradings."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import fingerprint, run_secret
from grader.classroom.grading.compare import pairs
from grader.classroom.records import Receipt
from grader.classroom.run_folder import RunFolder
from grader.course import catalog
from grader.course.items import SPEED
from grader.grading.options import RunOptions
from grader.results import reading
from grader.results.models import MOST_BYTES, Results
from grader.system import gpu
from grader.system.files import read_bytes
from grader.system.processes import run_tool


class VerifyError(Exception):
    """The receipt or a file that it needs is missing or cannot be read."""


class MachineError(Exception):
    """This machine cannot repeat the grading of the receipt."""


@dataclass
class Found:
    """Outcome of all comparisons: one line each, and whether all agree."""

    lines: list[str] = field(default_factory=list)
    agrees: bool = True

    def check(self, holds: bool, yes: str, no: str) -> None:
        """Record one comparison."""
        self.lines.append(f"  {'agrees ' if holds else 'DIFFERS'}  {yes if holds else no}")
        self.agrees = self.agrees and holds


def verify(path: Path, tolerance: float, hidden: Path | None) -> Found:
    """Compare hashes, seed, verdicts and times. Raises VerifyError or MachineError.

    Verdicts of correctness and of generated code must be equal. A timed shape may differ by `tolerance`, in
    percent of its baseline.
    """
    path = path.resolve()
    try:
        receipt = records.read(path, Receipt)
        data = read_bytes(path.with_name("results.json"), MOST_BYTES)
        first, measured = reading.parse(data), reading.measured_sha256(data)
    except (OSError, ValueError) as error:
        raise VerifyError(f"{path}: {str(error).splitlines()[0]}") from None
    found, folder = Found(), path.parent.parent if not receipt.blind else path.parent.parent.parent
    _check_hashes(found, receipt, data, measured, folder)
    if receipt.hidden_sha256:
        if hidden is None:
            raise VerifyError("graded with hidden cases: --hidden names their file")
        same = hashlib.sha256(hidden.read_bytes()).hexdigest() == receipt.hidden_sha256
        found.check(same, "the hidden cases", "the hidden cases have changed since")
    present, missing = gpu.find()
    if receipt.tier == "gpu" and not present:
        raise MachineError(f"it was graded on a GPU, and this machine has none: {missing}")
    if present and receipt.machine.gpu and present.name != receipt.machine.gpu.name:
        found.lines.append(f"  note     graded on {receipt.machine.gpu.name}, again on {present.name}")
    _gradings(found, first, _again(receipt, folder / "files", hidden), tolerance)
    return found


def _check_hashes(found: Found, receipt: Receipt, data: bytes, measured: str, folder: Path) -> None:
    """Compare everything that needs no grading."""
    same = hashlib.sha256(data).hexdigest() == receipt.results_sha256
    found.check(same, "results.json matches the receipt", "results.json has changed since the receipt")
    found.check(measured == receipt.rounds_sha256, "raw rounds", "the rounds have changed since the receipt")
    for name, digest in sorted(receipt.files.items()):
        file = folder / "files" / name
        now = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"
        found.check(now == digest, name, f"{name} is {now[:16]}, and was {digest[:16]}")
    for words, was, now in (
        ("the modules that grade", receipt.grader_sha256, fingerprint.grader()),
        ("the lab", receipt.lab_sha256, fingerprint.lab(receipt.unit.name)),
    ):
        if was != now:
            found.lines.append(f"  note     {words} have changed since")
    _seed(found, receipt, RunFolder(folder.parent.parent))


def _seed(found: Found, receipt: Receipt, run: RunFolder) -> None:
    """Check seed and commitment against the secret of the run, if it is available."""
    if not run.secret.is_file():
        found.lines.append("  note     the secret of the run is not here: the seed was not compared with it")
        return
    secret = read_bytes(run.secret).strip()
    name, unit = receipt.student, receipt.unit.name
    right = (
        run_secret.commitment(secret) == receipt.seed_commitment
        and run_secret.seed(secret, name, unit, receipt.attempt, receipt.blind) == receipt.seed
    )
    found.check(right, "seed and commitment", "the seed does not follow from the secret")
    sealed = run_secret.seal(secret, receipt) == receipt.seal
    found.check(sealed, "seal of the receipt", "the receipt was changed after it was written")


def _again(receipt: Receipt, files: Path, hidden: Path | None) -> Results:
    with tempfile.TemporaryDirectory(prefix="grader-verify-") as scratch:
        asked = RunOptions(
            labs=receipt.unit.lab, source=str(files), tier=receipt.tier, seed=receipt.seed,
            keyword=receipt.keyword or "", arch=receipt.arch, results=Path(scratch),
            hidden=hidden.resolve() if hidden and receipt.hidden_sha256 else None,
        )  # fmt: skip
        done = run_tool([sys.executable, "-m", "grader", *asked.arguments()], None, cwd=catalog.ROOT)
        if done.code:
            said = (done.complaint or done.text.strip())[-300:]
            raise MachineError(f"the second grading ended with exit code {done.code}: {said}")
        return reading.read(Path(scratch) / "results.json")


def _gradings(found: Found, first: Results, second: Results, tolerance: float) -> None:
    try:
        compared = list(pairs(first, second))
    except ValueError as error:
        found.check(False, "", str(error))
        return
    judged = [pair for pair in compared if pair.first.kind != SPEED]
    changed = [pair.changed for pair in judged if pair.changed]
    found.check(not changed, f"{len(judged)} verdicts", "; ".join(changed[:8]))
    timed = [pair for pair in compared if pair.first.kind == SPEED]
    for pair in timed:
        if pair.percent is None:
            same = pair.first.verdict is pair.second.verdict
            found.check(
                same, f"{pair.first.id}: {pair.first.verdict.value}", f"{pair.first.id} was not timed twice"
            )
            continue
        words = f"{pair.first.id}: {pair.percent:.2f} % of the baseline apart, {tolerance:g} are allowed"
        found.check(pair.percent <= tolerance, words, words)

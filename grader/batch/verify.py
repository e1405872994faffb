"""Grade again what a receipt is of, from its own seed, and hold the two gradings side by side."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from grader import catalog, gpu
from grader.batch import fingerprint, models, seeds
from grader.batch.compare import pairs
from grader.batch.layout import RunFolder
from grader.batch.models import Receipt
from grader.batch.receipts import rounds
from grader.files import read_bytes
from grader.questions import SPEED
from grader.results import MOST_BYTES, Results


class VerifyError(Exception):
    """The receipt, or what belongs to it, is not there or cannot be read."""


class MachineError(Exception):
    """This machine cannot grade what the receipt is of."""


@dataclass
class Found:
    """What was compared, a line each, and whether all of it agrees."""

    lines: list[str] = field(default_factory=list)
    agrees: bool = True

    def check(self, holds: bool, yes: str, no: str) -> None:
        """Note one comparison."""
        self.lines.append(f"  {'agrees ' if holds else 'DIFFERS'}  {yes if holds else no}")
        self.agrees = self.agrees and holds


def verify(path: Path, tolerance: float, hidden: Path | None) -> Found:
    """Compare hashes, seed, verdicts and times; `tolerance` in percent of the baseline is for what is timed.

    Verdicts of correctness and of generated code must be equal; a timed shape may differ by `tolerance`.
    """
    path = path.resolve()
    try:
        receipt = models.read(path, Receipt)
        data = read_bytes(path.with_name("results.json"), MOST_BYTES)
        first = Results.model_validate_json(data)
    except (OSError, ValueError) as error:
        raise VerifyError(f"{path}: {str(error).splitlines()[0]}") from None
    found, folder = Found(), path.parent.parent if not receipt.blind else path.parent.parent.parent
    _papers(found, receipt, data, first, folder)
    if receipt.hidden_sha256:
        if hidden is None:
            raise VerifyError("graded with hidden cases: --hidden names their file")
        same = hashlib.sha256(hidden.read_bytes()).hexdigest() == receipt.hidden_sha256
        found.check(same, "the hidden cases", "the hidden cases are others now")
    present, missing = gpu.find()
    if receipt.tier == "gpu" and not present:
        raise MachineError(f"it was graded on a GPU, and here is none: {missing}")
    if present and receipt.machine.gpu and present.name != receipt.machine.gpu["name"]:
        found.lines.append(f"  note     graded on {receipt.machine.gpu['name']}, again on {present.name}")
    _gradings(found, first, _again(receipt, folder / "files", hidden), tolerance)
    return found


def _papers(found: Found, receipt: Receipt, data: bytes, first: Results, folder: Path) -> None:
    """What can be compared without grading anything."""
    same = hashlib.sha256(data).hexdigest() == receipt.results_sha256
    found.check(same, "results.json is the one of the receipt", "results.json was changed since")
    found.check(rounds(first) == receipt.rounds_sha256, "raw rounds", "the raw rounds were changed since")
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
    """Whether the seed is the one that the published commitment stands for, where the secret is at hand."""
    if not run.secret.is_file():
        found.lines.append("  note     the secret of the run is not here: the seed was not compared with it")
        return
    secret = read_bytes(run.secret).strip()
    name, unit = receipt.student, receipt.unit.name
    right = (
        seeds.commitment(secret) == receipt.seed_commitment
        and seeds.seed(secret, name, unit, receipt.attempt, receipt.blind) == receipt.seed
    )
    found.check(right, "seed and commitment", "the seed does not follow from the secret")
    sealed = seeds.seal(secret, receipt) == receipt.seal
    found.check(sealed, "seal of the receipt", "the receipt was changed since")


def _again(receipt: Receipt, files: Path, hidden: Path | None) -> Results:
    with tempfile.TemporaryDirectory(prefix="grader-verify-") as scratch:
        command = [sys.executable, "-m", "grader", "grade", "--lab", receipt.unit.lab, "--from", str(files)]
        command += ["--tier", receipt.tier, "--seed", str(receipt.seed), "--arch", f"sm_{receipt.arch}"]
        command += ["--results", scratch]
        command += ["-k", receipt.keyword] if receipt.keyword else []
        command += ["--hidden", str(hidden.resolve())] if hidden and receipt.hidden_sha256 else []
        done = subprocess.run(command, cwd=catalog.ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-300:]
            raise MachineError(f"grading again ended with exit code {done.returncode}: {said}")
        return Results.model_validate_json((Path(scratch) / "results.json").read_bytes())


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

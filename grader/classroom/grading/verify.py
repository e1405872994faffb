"""Repeat the grading that a receipt describes, from its seed, and name everything that differs."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import attempts, fingerprint, keyword_filter, rescoring, run_secret
from grader.classroom.platforms.merge import scored as with_sums
from grader.classroom.records import Receipt
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.course import catalog
from grader.course.items import SPEED
from grader.grading.options import RunOptions
from grader.results import reading
from grader.results.models import MOST_BYTES, ItemResult, Results
from grader.system import gpu
from grader.system.files import read_bytes
from grader.system.processes import run_tool

GRADER = (sys.executable, "-m", "grader")
REPEATED = (
    "date",
    "grader",
    "tier",
    "arch",
    "seed",
    "machine",
    "assurance",
    "points",
)  # also in results.json
OF_TASK = ("student", "attempt", "results_sha256", "measured_in")  # also in task.json
JUDGED = ("verdict", "reason")  # of an item without a time
POINTS = ("points", "max_points")  # the same, where the lab has not changed


class VerifyError(Exception):
    """The receipt or a file that it needs is missing or cannot be read."""


class MachineError(Exception):
    """This machine cannot repeat the grading of the receipt."""


@dataclass
class Found:
    """Outcome of all comparisons: one line each, whether all agree, and how many could not be made."""

    lines: list[str] = field(default_factory=list)
    agrees: bool = True
    unseen: int = 0

    def check(self, holds: bool, yes: str, no: str) -> None:
        """Record one comparison."""
        self.lines.append(f"  {'agrees  ' if holds else 'DIFFERS '} {yes if holds else no}")
        self.agrees = self.agrees and holds

    def differences(self, found: Iterable[str], otherwise: str) -> None:
        """Record each difference, or that there is none."""
        named = list(found)
        for words in named:
            self.check(False, "", words)
        if not named:
            self.check(True, otherwise, "")

    def note(self, words: str) -> None:
        """Record something to know that is no comparison."""
        self.lines.append(f"  note     {words}")

    def not_seen(self, words: str) -> None:
        """Record a comparison that cannot be made here."""
        self.lines.append(f"  NOT SEEN {words}")
        self.unseen += 1


def verify(path: Path, tolerance: float, hidden: Path | None) -> Found:
    """Compare seal, hashes, seed, files, verdicts, points and times. Raises VerifyError or MachineError.

    Verdicts, reasons and points of correctness and of generated code must be equal. A timed shape may differ
    by `tolerance`, in percent of its baseline; its points must follow from its time.
    """
    path = path.resolve()
    try:
        receipt = records.read(path, Receipt)
        data = read_bytes(path.with_name("results.json"), MOST_BYTES)
        first, measured = reading.parse(data), reading.measured_sha256(data)
    except (OSError, ValueError) as error:
        raise VerifyError(f"{path}: {str(error).splitlines()[0]}") from None
    student = next((one for one in path.parents if (one / "files").is_dir()), None)
    if student is None:
        raise VerifyError(f"{path}: not in a run folder; no folder files/ of the student is above it")
    found = Found()
    _check_keys(found, receipt, RunFolder(student.parent.parent))
    _check_hashes(found, receipt, data, measured)
    _check_fields(found, receipt, first, path)
    _check_files(found, receipt, first, student / "files")
    _check_hidden(found, receipt, hidden)
    _check_points(found, receipt, first, hidden)
    _check_versions(found, receipt)
    fields = (*JUDGED, *POINTS) if fingerprint.same_lab(receipt) else JUDGED
    _gradings(found, first, _again(receipt, student / "files", hidden), fields, tolerance)
    return found


def _check_keys(found: Found, receipt: Receipt, run: RunFolder) -> None:
    """Check seal, seed and commitment with the keys of the run, as far as they are here."""
    own = run_secret.sealing_key(run)
    secret = read_bytes(run.secret).strip() if run.secret.is_file() else None
    key, name = (own, "sealing-key") if receipt.seal_commitment else (secret, "secret")
    if not receipt.seal_commitment and own is not None:
        found.check(False, "", "the receipt is not sealed with the sealing key of this run")
    elif key is None:
        found.not_seen(f"state/{name} is not here: whether the receipt was changed since")
    elif receipt.seal_commitment and run_secret.commitment(key) != receipt.seal_commitment:
        found.check(False, "", "seal_commitment: the receipt names another sealing key")
    else:
        holds = run_secret.seal(key, receipt) == receipt.seal
        found.check(holds, "seal of the receipt", "the receipt was changed after it was written")
    if not receipt.seal_commitment:
        found.note(
            "sealed with the secret itself, by an older version: no proof once the secret is published"
        )
    if secret is None:
        found.not_seen("state/secret is not here: whether the seed follows from it")
        return
    attempt = receipt.measured_in or receipt.attempt
    # A receipt of an earlier version has a seed of 32 bits.
    derive = run_secret.seed if receipt.seed >= 2**32 else run_secret.earlier_seed
    seed = derive(secret, receipt.student, receipt.unit.name, attempt, receipt.blind)
    commitment = run_secret.commitment(secret) == receipt.seed_commitment
    found.check(commitment, "seed_commitment", "seed_commitment: the run has another secret")
    found.check(seed == receipt.seed, "seed", f"seed: {receipt.seed}, and {seed} follows from the secret")


def _check_hashes(found: Found, receipt: Receipt, data: bytes, measured: str) -> None:
    same = hashlib.sha256(data).hexdigest() == receipt.results_sha256
    found.check(same, "results.json matches the receipt", "results.json has changed since the receipt")
    found.check(measured == receipt.rounds_sha256, "raw rounds", "the rounds have changed since the receipt")


def _check_fields(found: Found, receipt: Receipt, first: Results, path: Path) -> None:
    """Compare what is written in several files, and sums with what they are sums of."""
    wrong = [
        f"{name}: {getattr(receipt, name)} in the receipt, {getattr(first, name)} in results.json"
        for name in REPEATED
        if getattr(receipt, name) != getattr(first, name)
    ]
    found.differences(wrong, f"{', '.join(REPEATED)} of receipt and results.json")
    task = attempts.record_of(UnitFolder(path.parent))
    if task is None:
        found.not_seen("task.json is not beside the receipt: whether this grading is the one on record")
    else:
        named = [(name, getattr(receipt, name), getattr(task, name)) for name in OF_TASK]
        named.append(("unit", receipt.unit.name, task.unit))
        wrong = [
            f"{name}: {one} in the receipt, {other} in task.json"
            for name, one, other in named
            if one != other
        ]
        found.differences(wrong, "student, unit and attempt of receipt and task.json")
    found.differences(_sums(first), "sums of points")


def _sums(first: Results) -> Iterable[str]:
    exact = with_sums(first)
    pairs = [("all labs", first, exact)]
    pairs += [(one.folder, one, other) for one, other in zip(first.labs, exact.labs, strict=True)]
    for name, one, other in pairs:
        for key in ("points", "graded_points", "not_graded_points", "max_points"):
            told, sum_ = getattr(one, key), getattr(other, key)
            if told != sum_:
                yield f"{key} of {name}: {told}, and its items add up to {sum_}"


def _check_files(found: Found, receipt: Receipt, first: Results, files: Path) -> None:
    """Compare the files that are here with the receipt, and with what results.json says was graded."""
    for name, digest in sorted(receipt.files.items()):
        file = files / name
        now = attempts.sha256(file) if file.is_file() else "missing"
        found.check(now == digest, name, f"{name} is {now[:16]}, and was {digest[:16]}")
    wrong = [
        f"file of {exercise.name}: {exercise.file_sha256[:16]} in results.json, not in the receipt"
        for lab in first.labs
        for exercise in lab.exercises
        if exercise.file_sha256 and exercise.file_sha256 not in receipt.files.values()
    ]
    found.differences(wrong, "files of results.json and receipt")


def _check_hidden(found: Found, receipt: Receipt, hidden: Path | None) -> None:
    if not receipt.hidden_sha256:
        return
    if hidden is None:
        raise VerifyError("graded with hidden cases: --hidden names their file")
    same = attempts.sha256(hidden) == receipt.hidden_sha256
    found.check(same, "the hidden cases", "the hidden cases have changed since")


def _check_points(found: Found, receipt: Receipt, first: Results, hidden: Path | None) -> None:
    """Compare the points of each item with those that follow from its verdict and time."""
    if not fingerprint.same_lab(receipt):
        found.not_seen("the lab or its points have changed since: the points of single items")
        return
    try:
        expected = _expected_points(receipt, first, hidden)
    except rescoring.RescoreError as error:
        found.check(False, "", str(error))
        return
    if expected is not None:
        wrong = [
            f"{one.id}: points {one.points}, and its verdict and time give {other.points}"
            for one, other in zip(first.items, expected.items, strict=True)
            if one.points != other.points
        ]
        found.differences(wrong, "points follow from verdicts and times")


def _expected_points(receipt: Receipt, first: Results, hidden: Path | None) -> Results | None:
    """Return the results with points computed again. Raises RescoreError if the lab has other items."""
    used = hidden if receipt.hidden_sha256 else None
    items = keyword_filter.items(receipt.keyword or "", [receipt.unit], used)
    return rescoring.rescored(first, rescoring.by_id(items))


def _check_versions(found: Found, receipt: Receipt) -> None:
    """Note what a difference may come from. Raises MachineError if a GPU is needed and there is none."""
    if receipt.grader_sha256 != fingerprint.grader():
        found.note("the modules that grade have changed since")
    if receipt.measures_sha256 not in ("", fingerprint.measures(receipt.unit.name)):
        found.note("the lab has changed since, in more than its points")
    present, missing = gpu.find()
    if receipt.tier == "gpu" and not present:
        raise MachineError(f"it was graded on a GPU, and this machine has none: {missing}")
    if present and receipt.machine.gpu and present.name != receipt.machine.gpu.name:
        found.note(f"graded on {receipt.machine.gpu.name}, again on {present.name}")


def _again(receipt: Receipt, files: Path, hidden: Path | None) -> Results:
    with tempfile.TemporaryDirectory(prefix="grader-verify-") as scratch:
        asked = RunOptions(
            labs=receipt.unit.lab, source=str(files), tier=receipt.tier, seed=receipt.seed,
            keyword=receipt.keyword or "", arch=receipt.arch, results=Path(scratch) / "again",
            hidden=hidden.resolve() if hidden and receipt.hidden_sha256 else None,
        )  # fmt: skip
        done = run_tool([*GRADER, *asked.arguments()], None, cwd=catalog.ROOT)
        if done.code:
            said = (done.complaint or done.text.strip())[-300:]
            raise MachineError(f"the second grading ended with exit code {done.code}: {said}")
        return reading.read(Path(scratch) / "again" / "results.json")


def _gradings(found: Found, first: Results, second: Results, fields: Sequence[str], tolerance: float) -> None:
    """Compare two gradings item by item, and the files that they read."""
    left, right = _items(first), _items(second)
    wrong = [f"{name}: not in the first grading" for folder, name in right if (folder, name) not in left]
    wrong += [f"{name}: not in the second grading" for folder, name in left if (folder, name) not in right]
    both = [(left[name], right[name]) for name in left if name in right]
    judged = [pair for pair in both if pair[0].kind != SPEED]
    for one, other in judged:
        wrong += [
            f"{one.id}: {name} {_text(getattr(one, name))}, then {_text(getattr(other, name))}"
            for name in fields
            if getattr(one, name) != getattr(other, name)
        ]
    words = f"{len(judged)} verdicts with their reasons"
    found.differences(wrong, f"{words} and points" if "points" in fields else words)
    files = [
        {one.name: one.file_sha256 for lab in run.labs for one in lab.exercises} for run in (first, second)
    ]
    changed = [name for name in files[0] if files[0][name] != files[1].get(name)]
    found.differences((f"file of {name}: the second grading read another" for name in changed), "files read")
    if first.timing_protocol != second.timing_protocol:
        protocols = f"{first.timing_protocol} and {second.timing_protocol}"
        found.not_seen(f"times: measured by timing protocols {protocols}, whose percentages do not compare")
        return
    for one, other in (pair for pair in both if pair[0].kind == SPEED):
        _timed(found, one, other, tolerance)


def _timed(found: Found, one: ItemResult, other: ItemResult, tolerance: float) -> None:
    if one.timing is None or other.timing is None:
        words = f"{one.id}: verdict {one.label}, then {other.label}; not timed twice"
        found.check(one.label == other.label, f"{one.id}: {one.label}", words)
        return
    apart = abs(one.timing.percent_of_baseline - other.timing.percent_of_baseline)
    words = f"{one.id}: {apart:.2f} % of the baseline apart, {tolerance:g} are allowed"
    found.check(apart <= tolerance, words, words)


def _items(results: Results) -> dict[tuple[str, str], ItemResult]:
    return {(lab.folder, item.id): item for lab, _, item in results.every_item()}


def _text(value: object) -> str:
    return str(getattr(value, "value", value)) or "none"

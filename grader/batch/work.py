"""Grade one unit of one student in a process of its own; runs in a worker, and leaves files alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from grader import catalog
from grader.batch import busy, models
from grader.batch.alive import commanded
from grader.batch.layout import RunFolder, UnitFolder
from grader.batch.models import State, TaskRecord, Unit
from grader.batch.supervise import OVER, SIGNALLED
from grader.files import read_bytes
from grader.files import replace as put
from grader.outcome import printable
from grader.results import MOST_BYTES, Results

LOOK_S = 0.25  # between two looks at whether the command lives
MOST_LOG = 256 << 10  # bytes of what a grader printed that are kept
FAULT_CODE = 3  # of `grade`: grader or machine at fault


@dataclass(frozen=True)
class Task:
    """One grading, with all that a worker on another machine needs."""

    run: str  # the run folder
    token: str  # of the command that asks
    student: str
    unit: Unit
    blind: bool
    seed: int
    attempt: int
    fingerprint: str
    tier: str
    keyword: str | None
    hidden: str | None
    limit_s: float
    files: str  # the tree to grade
    folder: str  # where task.json and the others go
    options: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # how earlier tries were lost
    command: tuple[str, ...] = (sys.executable, "-m", "grader")

    @property
    def name(self) -> str:
        """`ada/lab1_elementwise_add`, with what it is called in a list."""
        return f"{self.student}/{self.unit.name}" + ("/again" if self.blind else "")


@dataclass(frozen=True)
class Ended:
    """How a task ended: a record that lies in the run folder, or how it was lost."""

    record: TaskRecord | None
    lost: str = ""


def run(task: Task) -> Ended:
    """Grade, and put log, results and record into the run folder, in this order; none where it was lost."""
    lock = RunFolder(Path(task.run)).lock
    if not commanded(lock, task.token):
        return Ended(None, "its command has ended")
    accelerator = os.environ.get("CUDA_VISIBLE_DEVICES", "") if task.tier == "gpu" else ""
    if task.tier == "gpu":
        waiting = RunFolder(Path(task.run)).engine / f"waiting-{os.uname().nodename}-{accelerator}"
        if not busy.wait(waiting, lambda: commanded(lock, task.token)):
            return Ended(None, f"GPU {accelerator} on {os.uname().nodename} was in use by others")
    prefix = f"grader-class-{hashlib.sha256(task.run.encode()).hexdigest()[:12]}"
    _remove_left(prefix)
    scratch = Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-"))
    scratch.chmod(0o711)  # the grader's workers run as users of their own below it
    try:
        began = time.monotonic()
        code = _grade(task, scratch, lock)
        if code is None or not commanded(lock, task.token):
            return Ended(None, "its command has ended")
        record = TaskRecord(
            student=task.student, unit=task.unit.name, state=State.GRADED, fingerprint=task.fingerprint,
            attempt=task.attempt, lost=list(task.lost), exit_code=code,
            seconds=round(time.monotonic() - began, 1), accelerator=accelerator,
        )  # fmt: skip
        return _finish(task, scratch, record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def give_up(task: Task) -> TaskRecord:
    """The record of a task that was lost too often; the unit stays open."""
    place = UnitFolder(Path(task.folder)).task
    record = TaskRecord(
        student=task.student, unit=task.unit.name, state=State.FAULT, what=task.lost[-1],
        fingerprint=task.fingerprint, attempt=task.attempt, lost=list(task.lost),
    )  # fmt: skip
    if place.exists():  # with the results of the last try, perhaps
        earlier = models.read(place, TaskRecord)
        if earlier.fingerprint == task.fingerprint and earlier.state is State.FAULT:
            record = earlier.model_copy(update={"lost": list(task.lost)})
    models.write(place, record)
    return record


def _grade(task: Task, scratch: Path, lock: Path) -> int | None:
    """The grader's exit code; None where the command that asked for it has ended meanwhile."""
    tier = ["--tier", task.tier, "--seed", str(task.seed)]
    asked = [*task.command, "grade", "--lab", task.unit.lab, "--from", task.files, *tier, *task.options]
    asked += ["--results", str(scratch / "results")]
    asked += ["-k", task.keyword] if task.keyword else []
    asked += ["--hidden", task.hidden] if task.hidden else []
    supervised = [sys.executable, "-m", "grader.batch.supervise", str(task.limit_s), *asked]
    environment = os.environ | {"GRADER_SCRATCH": str(scratch), "COLUMNS": "100", "NO_COLOR": "1"}
    with open(scratch / "log", "wb") as log:
        process = subprocess.Popen(
            supervised, cwd=catalog.ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        while True:
            try:
                return process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if commanded(lock, task.token):
                    continue
            process.send_signal(signal.SIGTERM)  # it ends all that was started, and then itself
            process.wait()
            return None


def _finish(task: Task, scratch: Path, record: TaskRecord) -> Ended:
    """Sort out how the grader ended, and put what it left into the run folder."""
    code, place = record.exit_code, UnitFolder(Path(task.folder))
    place.root.mkdir(parents=True, exist_ok=True)
    log, results = _log(scratch / "log"), _results(scratch / "results" / "results.json")
    put(place.log, log)
    if code == OVER:
        words = f"the grader had not finished after {task.limit_s:.0f} s"
        record = record.model_copy(update={"state": State.TIMEOUT, "what": words})
        models.write(place.task, record)
        place.results.unlink(missing_ok=True)
        return Ended(record)
    if results is None or code not in (0, FAULT_CODE):
        last = (log.strip().splitlines() or ["it printed nothing"])[-1][:200]
        how = f"by signal {code - SIGNALLED}" if code > SIGNALLED else f"with exit code {code}"
        return Ended(None, f"the grader ended {how}: {last}")
    put(place.results, results)
    record = record.model_copy(update={"results_sha256": hashlib.sha256(results).hexdigest()})
    if code == FAULT_CODE:
        words = "the grader says that it, or this machine, is at fault"
        models.write(place.task, record.model_copy(update={"state": State.FAULT, "what": words}))
        return Ended(None, words)
    models.write(place.task, record)
    return Ended(record)


def _results(path: Path) -> bytes | None:
    """The bytes of a results file that is one; None for anything else."""
    try:
        data = read_bytes(path, MOST_BYTES)
        Results.model_validate_json(data)
    except (OSError, ValueError):
        return None
    return data


def _log(path: Path) -> str:
    """What the grader printed, safe to show, with its middle left out where there is too much of it."""
    with open(path, "rb") as file:
        data = file.read(MOST_LOG // 2)
        file.seek(max(len(data), path.stat().st_size - MOST_LOG // 2))
        rest = file.read()
    return printable((data + rest).decode("utf-8", "replace"))


def _remove_left(prefix: str) -> None:
    """Scratch folders of this run whose workers were killed before they could remove them."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}-*"):
        pid = path.name.removeprefix(f"{prefix}-").split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)

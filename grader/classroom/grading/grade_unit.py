"""Grade one unit of one student in a separate process; runs in a worker and returns results as files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from grader.classroom import records
from grader.classroom.grading import gpu_idle
from grader.classroom.grading.supervise import OVER, SIGNALLED
from grader.classroom.records import State, TaskRecord, Unit
from grader.classroom.run_folder import RunFolder, UnitFolder
from grader.course import catalog
from grader.grading.options import RunOptions
from grader.results import reading
from grader.results.models import MOST_BYTES
from grader.system import gpu, gpu_lock
from grader.system.files import read_bytes
from grader.system.files import replace as put
from grader.system.locks import is_held
from grader.system.processes import Child
from grader.system.text import printable

LOOK_S = 0.25  # between two checks whether the command still runs
MOST_LOG = 256 << 10  # bytes of the grader's output that are kept
FAULT_CODE = 3  # exit code of `grade`: grader or machine at fault


@dataclass(frozen=True)
class Task:
    """One grading, with everything that a worker on another machine needs."""

    run: str  # the run folder
    token: str  # identifies the command that runs the class
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
    files: str  # folder with the files to grade
    folder: str  # folder for task.json and the other results
    files_sha256: str = ""  # hash of the files to grade, to tell a regrade from a new hand-in
    handed_in: str | None = None  # when they were handed in
    screened: bool = True
    lost: tuple[str, ...] = ()  # why earlier attempts failed
    command: tuple[str, ...] = (sys.executable, "-m", "grader")

    @property
    def name(self) -> str:
        """Display name, such as `ada/lab1_elementwise_add`."""
        return f"{self.student}/{self.unit.name}" + ("/again" if self.blind else "")


@dataclass(frozen=True)
class Ended:
    """Outcome of a task: the record in the run folder, or `lost`, why the infrastructure failed."""

    record: TaskRecord | None
    lost: str = ""


def run(task: Task) -> Ended:
    """Grade, then write log, results and record in this order; no record after an infrastructure failure."""
    lock = RunFolder(Path(task.run)).lock
    if not is_held(lock, task.token):
        return Ended(None, "its command has ended")
    accelerator = os.environ.get("CUDA_VISIBLE_DEVICES", "") if task.tier == "gpu" else ""
    if task.tier == "gpu":
        waiting = RunFolder(Path(task.run)).engine / f"waiting-{os.uname().nodename}-{accelerator}"
        if not gpu_idle.wait(waiting, lambda: is_held(lock, task.token), _used_by_others):
            return Ended(None, f"GPU {accelerator} on {os.uname().nodename} was in use by others")
    prefix = f"grader-class-{hashlib.sha256(task.run.encode()).hexdigest()[:12]}"
    _remove_left(prefix)
    scratch = Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-"))
    scratch.chmod(0o711)  # the grader's workers run in it as other users
    try:
        began = time.monotonic()
        code = _grade(task, scratch, lock)
        if code is None or not is_held(lock, task.token):
            return Ended(None, "its command has ended")
        record = TaskRecord(
            student=task.student, unit=task.unit.name, state=State.GRADED, fingerprint=task.fingerprint,
            attempt=task.attempt, lost=list(task.lost), exit_code=code,
            seconds=round(time.monotonic() - began - (gpu_lock.waited_s(scratch / gpu_lock.NOTE) or 0.0), 1),
            accelerator=accelerator,
            files_sha256=task.files_sha256, handed_in=task.handed_in,
        )  # fmt: skip
        return _finish(task, scratch, record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def give_up(task: Task) -> TaskRecord:
    """Write and return a FAULT record for a task that failed too often; the unit stays open."""
    place = UnitFolder(Path(task.folder)).task
    record = TaskRecord(
        student=task.student, unit=task.unit.name, state=State.FAULT, what=task.lost[-1],
        fingerprint=task.fingerprint, attempt=task.attempt, lost=list(task.lost),
        files_sha256=task.files_sha256, handed_in=task.handed_in,
    )  # fmt: skip
    if place.exists():  # the last attempt may have left results
        earlier = records.read(place, TaskRecord)
        if earlier.fingerprint == task.fingerprint and earlier.state is State.FAULT:
            record = earlier.model_copy(update={"lost": list(task.lost)})
    records.write(place, record)
    return record


def _used_by_others() -> str:
    """Describe who uses the GPU; empty if it is idle, or if a grader has its lock, which is waited for."""
    found, _ = gpu.find()
    return "" if found and gpu_lock.GpuLock(found.uuid_hash).is_taken else gpu_idle.used_by()


def _grade(task: Task, scratch: Path, lock: Path) -> int | None:
    """Run the grader and return its exit code; None if the command that runs the class ended meanwhile."""
    asked = RunOptions(
        labs=task.unit.lab, source=task.files, tier=task.tier, seed=task.seed, keyword=task.keyword or "",
        screened=task.screened, hidden=Path(task.hidden) if task.hidden else None,
        results=scratch / "results",
    )  # fmt: skip
    supervised = [sys.executable, "-m", "grader.classroom.grading.supervise", str(task.limit_s)]
    supervised += [*task.command, *asked.arguments()]
    environment = os.environ | {"GRADER_SCRATCH": str(scratch), "COLUMNS": "100", "NO_COLOR": "1"}
    with open(scratch / "log", "wb") as log:
        child = Child(supervised, cwd=catalog.ROOT, env=environment, stdout=log, stderr=log)
        while (code := child.wait(LOOK_S)) is None:
            if not is_held(lock, task.token):
                child.terminate()  # it ends all processes that it started, then itself
                child.wait()
                return None
        return code


def _finish(task: Task, scratch: Path, record: TaskRecord) -> Ended:
    """Interpret the exit code and write log, results and record into the run folder."""
    code, place = record.exit_code, UnitFolder(Path(task.folder))
    place.root.mkdir(parents=True, exist_ok=True)
    log, results = _log(scratch / "log"), _results(scratch / "results" / "results.json")
    put(place.log, log)
    if code == OVER:
        words = f"the grader had not finished after {task.limit_s:.0f} s"
        record = record.model_copy(update={"state": State.TIMEOUT, "what": words})
        records.write(place.task, record)
        place.results.unlink(missing_ok=True)
        return Ended(record)
    if results is None or code not in (0, FAULT_CODE):
        last = (log.strip().splitlines() or ["it printed nothing"])[-1][:200]
        how = f"by signal {code - SIGNALLED}" if code > SIGNALLED else f"with exit code {code}"
        return Ended(None, f"the grader ended {how}: {last}")
    put(place.results, results)
    record = record.model_copy(update={"results_sha256": hashlib.sha256(results).hexdigest()})
    if code == FAULT_CODE:
        words = "the grader reported that it or this machine is at fault"
        records.write(place.task, record.model_copy(update={"state": State.FAULT, "what": words}))
        return Ended(None, words)
    records.write(place.task, record)
    return Ended(record)


def _results(path: Path) -> bytes | None:
    """Return the bytes of a valid results file, else None."""
    try:
        data = read_bytes(path, MOST_BYTES)
        reading.parse(data)
    except (OSError, ValueError):
        return None
    return data


def _log(path: Path) -> str:
    """Return the grader's output without control characters; long output loses its middle."""
    with open(path, "rb") as file:
        data = file.read(MOST_LOG // 2)
        file.seek(max(len(data), path.stat().st_size - MOST_LOG // 2))
        rest = file.read()
    return printable((data + rest).decode("utf-8", "replace"))


def _remove_left(prefix: str) -> None:
    """Remove scratch folders of this run that killed workers left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}-*"):
        pid = path.name.removeprefix(f"{prefix}-").split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(path, ignore_errors=True)

"""Measurements for notebooks: taken on this machine if it has a GPU, else read from a record."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from grader.course import catalog
from grader.measure.bench.record import BenchRecord, OpRecord
from grader.measure.kernel_log import store
from grader.measure.kernel_log.record import Record
from grader.measure.survey.record import SurveyRecord
from grader.site.notebooks.lessons import LESSONS, Entry, Lessons, entry
from grader.system import gpu
from grader.system.processes import run_tool

Measured = TypeVar("Measured")

RESULTS = Path("solutions/results")
CAPSTONE = Path("solutions/gpu-programming")
SURVEY = CAPSTONE / "hardware-survey" / "survey.json"
MEASURE_LIMIT_S = 300.0


def gpu_or_record(
    measure: Callable[[], Measured], record: str | Path, read: Callable[[str], Measured]
) -> Measured:
    """Return the result of `measure` on this machine's GPU; without a GPU, `read` applied to a record's text.

    `record` is a path below the course's folder. The source of the result is printed.
    """
    found, _ = gpu.find()
    if found:
        print(f"measured here, on an {found.name}")
        return measure()
    text = _stored(Path(record))
    data = json.loads(text)
    print(
        f"no GPU here: measured on an {data['machine']['gpu']['name']}, record {record}, {data['date'][:10]}"
    )
    return read(text)


def bench(op: str, record: str, variants: Sequence[str] = ()) -> OpRecord:
    """Return all arms of one operation of `make bench`; measured here, it has only a few sizes.

    `record` is a file of solutions/results/. `variants` are files of solutions/ with further kernels, each an
    additional arm.
    """

    def of(text: str) -> OpRecord:
        return next(one for one in BenchRecord.model_validate_json(text).ops if one.name == op)

    return gpu_or_record(lambda: of(_bench_here(op, variants)), RESULTS / record, of)


def survey() -> SurveyRecord:
    """Return the hardware survey of the course's H200; a survey takes minutes, so no cell runs one."""
    stored = SurveyRecord.model_validate_json(_stored(SURVEY))
    print(f"measured on an {stored.machine.gpu.name}, record {SURVEY}, {stored.date[:10]}")
    return stored


def lesson_record(name: str) -> Entry:
    """Return the recorded texts and figures of a recorder; LookupError if the record lacks it."""
    lessons = Lessons.model_validate_json(_stored(LESSONS))
    if name not in lessons.entries:
        raise LookupError(f"{LESSONS} has no entry {name}: run python -m grader notebooks --record {LESSONS}")
    kept = lessons.entries[name]
    print(f"recorded on an {kept.machine.gpu.name}, record {LESSONS}, {kept.date[:10]}")
    return kept


def told(name: str) -> Entry:
    """Run a recorder on this machine's GPU; without a usable GPU, return its recorded entry."""
    found, _ = gpu.find()
    if found:
        from grader.site.notebooks.recorders import RECORDERS

        recorder = next(one for one in RECORDERS if one.name == name)
        try:
            here = entry(recorder.record(), found)
        except RuntimeError as error:  # a tool is missing, or has no permission to count
            print(f"not measured here: {error}")
        else:
            print(f"measured here, on an {found.name}")
            return here
    return lesson_record(name)


def logged() -> list[Record]:
    """Return the steps of the worked example's kernel log, in order."""
    return [one.record for one in store.steps(catalog.ROOT / CAPSTONE)]


def logged_step(name: str) -> Record:
    """Return the step that measured a CUDA file, by the file's name; LookupError if none did."""
    for one in logged():
        if one.name == name:
            return one
    raise LookupError(f"no step of the log measured {name}")


def counter(step: Record, name: str) -> float:
    """Return a counter of the longest kernel of a step."""
    return max(step.counters, key=lambda one: one.figures["duration"].value).figures[name].value


def _stored(path: Path) -> str:
    try:
        return (catalog.ROOT / path).read_text("utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"no GPU here, and the record {path} does not exist") from None


def _bench_here(op: str, variants: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        asked = ["bench", "--op", op, "--quick", "--from", "solutions", "--results", folder]
        asked += [word for file in variants for word in ("--variants", f"solutions/{file}")]
        done = run_tool([sys.executable, "-m", "grader", *asked], MEASURE_LIMIT_S, cwd=catalog.ROOT)
        path = Path(folder, "bench.json")
        if done.code or not path.is_file():
            raise RuntimeError(f"bench of {op} failed: {done.complaint[-2000:]}")
        return path.read_text("utf-8")

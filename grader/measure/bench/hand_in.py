"""The benchmarks of a capstone: write and check the record and plots in each folder of kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from grader.course import catalog
from grader.measure import drawn_from
from grader.measure.bench.record import BenchRecord
from grader.results.records import read
from grader.system.files import read_bytes

RECORD, PLOTS = "bench.json", "plots"
AGAIN = "run `make bench LAB=capstone` again"


def write(record: BenchRecord, capstone: Path) -> list[Path]:
    """Write the records and plots of a run beside the kernels; return the paths of the records."""
    from grader.measure.bench import plots  # imported here: checking works without matplotlib

    written = []
    for name in dict.fromkeys(op.file.split("/")[1] for op in record.ops):
        mine = [op for op in record.ops if op.file.split("/")[1] == name]
        path = capstone / name / RECORD
        part = record.model_copy(update={"ops": mine})
        part.save(path)
        hashes = drawn_from.hashes([(RECORD, path.read_bytes())])
        plots.write([part], path.with_name(PLOTS), kinds=(".svg",), description=hashes)
        written.append(path)
    return written


def problems(folder: Path) -> list[str]:
    """List what is wrong with record and plots of a folder of kernels; FileNotFoundError without a record."""
    path = folder / RECORD
    try:
        data = read(path, RECORD, BenchRecord.most_bytes)
        record = BenchRecord.parse(data, RECORD)
    except FileNotFoundError:
        words = "run `make bench LAB=capstone` on a machine with a GPU"
        raise FileNotFoundError(f"{folder.name}/{RECORD} is missing: {words}") from None
    except ValueError as error:
        return [str(error)]
    return [*_of_kernels(record, folder), *_of_plots(record, folder, data)]


def _of_kernels(record: BenchRecord, folder: Path) -> Iterator[str]:
    """Check that each kernel with points for speed was measured, is right, and has not changed since."""
    if not record.machine.gpu:
        yield f"{RECORD} names no GPU: {AGAIN}"
    measured = {op.file.partition(f"{folder.name}/")[2]: op for op in record.ops}
    entry = catalog.load(catalog.ROOT / catalog.CAPSTONE / folder.name / "lab.py")
    for exercise in (one for one in entry.lab.exercises if one.speed):
        op, file = measured.get(exercise.file), folder / exercise.file
        if op is None:
            yield f"{exercise.file} was not measured: {AGAIN}"
            continue
        if _digest(file) != op.file_sha256:
            yield f"{exercise.file} was changed since it was measured: {AGAIN}"
        ours = [arm for one in op.sizes for arm in one.ours.values()]
        if not ours:
            yield f"{op.name} has no measurement: {AGAIN}"
        yield from dict.fromkeys(f"{op.name} was {arm.status}" for arm in ours if arm.status != "ok")


def _digest(file: Path) -> str:
    """Return the sha256 of a file, or "" if it cannot be read."""
    try:
        return hashlib.sha256(read_bytes(file)).hexdigest()
    except (OSError, ValueError):
        return ""


def _of_plots(record: BenchRecord, folder: Path, data: bytes) -> Iterator[str]:
    """Check that each operation has a plot that was drawn from this record."""
    for op in record.ops:
        name = f"{PLOTS}/{op.name}.svg"
        words = drawn_from.problem(folder / name, name, [(RECORD, data)], AGAIN, "another record")
        if words:
            yield words

"""The benchmarks of a capstone: a record and its plots in each of its folders of kernels; their check."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from grader import catalog, svg
from grader.bench.record import BenchRecord
from grader.files import finding, read_bytes

RECORD, PLOTS = "bench.json", "plots"
MOST_BYTES = 8 << 20  # of a record or a plot
AGAIN = "run `make bench LAB=capstone` again"


def write(record: BenchRecord, capstone: Path) -> list[Path]:
    """What a run measured, laid beside the kernels; the records that were written."""
    from grader.bench import plots  # who checks needs no matplotlib

    written = []
    for name in dict.fromkeys(op.file.split("/")[1] for op in record.ops):
        mine = [op for op in record.ops if op.file.split("/")[1] == name]
        path = capstone / name / RECORD
        part = record.model_copy(update={"ops": mine})
        part.save(path)
        told = svg.hashes([(RECORD, path.read_bytes())])
        plots.write([part], path.with_name(PLOTS), kinds=(".svg",), description=told)
        written.append(path)
    return written


def problems(folder: Path) -> list[str]:
    """What is wrong with record and plots of a folder of kernels. FileNotFoundError where none is there."""
    path = folder / RECORD
    if not path.exists():
        words = "make bench LAB=capstone, on a machine with a GPU"
        raise FileNotFoundError(f"{folder.name}/{RECORD} is missing: {words}")
    try:
        data = read_bytes(path, MOST_BYTES)
        record = BenchRecord.model_validate_json(data)
    except ValidationError as error:
        return [f"{RECORD} is no record of make bench: {finding(error)}"]
    except (OSError, ValueError) as error:
        return [str(error)]
    return [*_of_kernels(record, folder), *_of_plots(record, folder, data)]


def _of_kernels(record: BenchRecord, folder: Path) -> Iterator[str]:
    """Each kernel whose speed is asked for was measured, right, and as it is handed in."""
    if not record.machine.gpu:
        yield f"{RECORD} names no GPU"
    measured = {op.file.partition(f"{folder.name}/")[2]: op for op in record.ops}
    entry = catalog.load(catalog.ROOT / catalog.CAPSTONE / folder.name / "lab.py")
    for exercise in (one for one in entry.lab.exercises if one.speed):
        op, file = measured.get(exercise.file), folder / exercise.file
        if op is None:
            yield f"{exercise.file} was not measured: {AGAIN}"
            continue
        if _digest(file) != op.file_sha256:
            yield f"{exercise.file} was changed since it was measured: {AGAIN}"
        ours = [
            (name, arm) for one in op.sizes for name, arm in one.arms.items() if name.split()[0] == "ours"
        ]
        if not ours:
            yield f"{op.name} has no size with a figure"
        yield from dict.fromkeys(f"{op.name} was {arm.status}" for _, arm in ours if arm.status != "ok")


def _digest(file: Path) -> str:
    """The hash of a file; nothing of one that cannot be read."""
    try:
        return hashlib.sha256(read_bytes(file)).hexdigest()
    except (OSError, ValueError):
        return ""


def _of_plots(record: BenchRecord, folder: Path, data: bytes) -> Iterator[str]:
    """Each operation has a plot, and it was drawn from this record."""
    for op in record.ops:
        name = f"{PLOTS}/{op.name}.svg"
        try:
            told = svg.described(read_bytes(folder / name, MOST_BYTES))
        except FileNotFoundError:
            yield f"{name} is missing: {AGAIN}"
        except (OSError, ValueError) as error:
            yield f"{name}: {error}"
        else:
            if told != svg.hashes([(RECORD, data)]):
                yield f"{name} was drawn from another record: {AGAIN}"

"""The records that each plot of the survey is drawn from; their hashes are in the plot's metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from grader.measure import drawn_from
from grader.measure.bench.record import BenchRecord
from grader.measure.survey.record import RECORD
from grader.results.records import read

BENCHES = ("cuda-kernels/bench.json", "triton-kernels/bench.json")  # beside the folder of the survey
AGAIN = "run `make survey REDRAW=1`"
# The records of each plot; the roofline also shows the kernels of the benches.
PLOTS = {"bandwidth.svg": (RECORD,), "matmul.svg": (RECORD,), "roofline.svg": (RECORD, *BENCHES)}


def description(folder: Path, names: Sequence[str]) -> str:
    """Return name and sha256 of those records that exist: `survey.json sha256:...; ...`."""
    return drawn_from.hashes(_present(folder, names))


def benches(folder: Path) -> dict[str, BenchRecord]:
    """Read the bench records beside the survey's folder; ValueError, for a student to read, if any is bad."""
    return {name: BenchRecord.parse(data, name) for name, data in _present(folder, BENCHES)}


def stale(folder: Path) -> list[str]:
    """List the plots that are missing, or were drawn from other records than the present ones."""
    found = (
        drawn_from.problem(folder / name, name, _present(folder, records), AGAIN)
        for name, records in PLOTS.items()
    )
    return [words for words in found if words]


def _present(folder: Path, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Read those records that exist; ValueError for one that is not a regular file, or too large."""
    found = []
    for name in names:
        path = folder / name if name == RECORD else folder.parent / name
        with contextlib.suppress(FileNotFoundError):
            found.append((name, read(path, name, BenchRecord.most_bytes)))
    return found

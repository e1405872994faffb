"""Which records each plot of the survey is drawn from, written into the plot and read back from it."""

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
# Each plot with what it shows; the roofline has the kernels of the benches on it.
PLOTS = {"bandwidth.svg": (RECORD,), "matmul.svg": (RECORD,), "roofline.svg": (RECORD, *BENCHES)}


def description(folder: Path, names: Sequence[str]) -> str:
    """The sha256 of each of these records that is there: `survey.json sha256:...; ...`."""
    return drawn_from.hashes(_present(folder, names))


def benches(folder: Path) -> dict[str, BenchRecord]:
    """The bench records beside the survey's folder; ValueError, in words for a student, for a bad one."""
    return {name: BenchRecord.parse(data, name) for name, data in _present(folder, BENCHES)}


def stale(folder: Path) -> list[str]:
    """Plots that are missing, or drawn from other records than those that lie here now."""
    found = (
        drawn_from.problem(folder / name, name, _present(folder, records), AGAIN)
        for name, records in PLOTS.items()
    )
    return [words for words in found if words]


def _present(folder: Path, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Those of the records that are there; ValueError for one that is no plain file, or too large."""
    found = []
    for name in names:
        path = folder / name if name == RECORD else folder.parent / name
        with contextlib.suppress(FileNotFoundError):
            found.append((name, read(path, name, BenchRecord.most_bytes)))
    return found

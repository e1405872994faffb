"""Which records each plot of the survey is drawn from, written into the plot and read back from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from grader import svg
from grader.bench.record import BenchRecord
from grader.files import finding, read_bytes
from grader.outcome import one_line
from grader.survey.record import RECORD

BENCHES = ("cuda-kernels/bench.json", "triton-kernels/bench.json")  # beside the folder of the survey
MOST_BENCH_BYTES = 16 << 20
MOST_PLOT_BYTES = 8 << 20
# Each plot with what it shows; the roofline has the kernels of the benches on it.
PLOTS = {"bandwidth.svg": (RECORD,), "matmul.svg": (RECORD,), "roofline.svg": (RECORD, *BENCHES)}


def description(folder: Path, names: Sequence[str]) -> str:
    """The sha256 of each of these records that is there: `survey.json sha256:...; ...`."""
    return svg.hashes(_present(folder, names))


def benches(folder: Path) -> dict[str, BenchRecord]:
    """The bench records beside the survey's folder; ValueError, in words for a student, for a bad one."""
    found = {}
    for name, data in _present(folder, BENCHES):
        try:
            found[name] = BenchRecord.model_validate_json(data)
        except ValidationError as error:
            raise ValueError(f"{name} is no record of make bench: {finding(error)}") from None
    return found


def stale(folder: Path) -> list[str]:
    """Plots that are missing, or drawn from other records than those that lie here now."""
    found = []
    for name, records in PLOTS.items():
        try:
            told = svg.described(read_bytes(folder / name, MOST_PLOT_BYTES))
            if told != description(folder, records):
                found.append(f"{name} was drawn from other records: run `make survey REDRAW=1`")
        except FileNotFoundError:
            found.append(f"{name} is missing: run `make survey REDRAW=1`")
        except OSError as error:
            found.append(f"{name} cannot be read: {error.strerror}")
        except ValueError as error:
            found.append(one_line(f"{name}: {error}"))
    return found


def _present(folder: Path, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Those of the records that are there; ValueError for one that is no plain file, or too large."""
    found = []
    for name in names:
        path = folder / name if name == RECORD else folder.parent / name
        try:
            found.append((name, read_bytes(path, MOST_BENCH_BYTES)))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from None
    return found

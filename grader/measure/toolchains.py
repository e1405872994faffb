"""`make toolchains`: grade, test and run the notebooks with other versions of Triton, and record what passed.

Each version is installed into an environment of its own, which finds all other packages in the one that runs
this. PyTorch stays the same: its CPU build compiles nothing with Triton.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from grader.course import catalog
from grader.course.spec import Verdict
from grader.results import reading
from grader.results.base import Model
from grader.results.machine import Machine, machine, now
from grader.results.models import Results

VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
# The interpreter of 3.6 reads arrays of one element as numbers, which NumPy 2.4 no longer permits.
BESIDE = {"3.6.0": ("numpy<2.4",)}
RECORD = catalog.ROOT / "solutions" / "results" / "toolchains.json"
FOLDER = catalog.ROOT / "results" / "toolchains"
GRADED = FOLDER / "graded"
LIMIT_S = 3600.0  # of one check
SPECIMENS = (
    "grader/tests/whole/test_corpora.py", "-n", "auto", "-m", "not gpu and not browser and not slurm",
)  # fmt: skip
_COUNTS = re.compile(r"(\d+) (passed|failed|error)")


class Check(Model):
    """What was tried with one version, and how much of it was as it must be."""

    name: str
    held: float
    of: float
    seconds: float
    date: str
    machine: Machine  # with the version of Triton that ran the command

    @property
    def cell(self) -> str:
        """The numbers for a table."""
        return f"{self.held:.6g} of {self.of:.6g}"


class Toolchain(Model):
    """The checks with one version of Triton."""

    triton: str
    checks: tuple[Check, ...]


class Toolchains(Model):
    """A record of `make toolchains`."""

    toolchains: tuple[Toolchain, ...]


def environment(version: str) -> Path:
    """Return the Python of an environment with this version of Triton, which is made if it is not there.

    Raises RuntimeError with pip's words if the version cannot be installed.
    """
    folder = FOLDER / f"triton-{version}"
    python = folder / "bin" / "python"
    if (folder / "ready").is_file():
        return python
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    commands = (
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)],
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"),
            *(f"triton=={version}", *BESIDE.get(version, ())),
        ],
    )
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Triton {version} could not be installed: {done.stderr.strip()[-500:]}")
    Path(site, "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (folder / "ready").touch()
    return python


def _graded(python: Path, source: str) -> Results:
    """Grade on the CPU tier. RuntimeError with what was printed if that left no results."""
    file = GRADED / "results.json"
    file.unlink(missing_ok=True)  # of an earlier version
    done = _run(python, "grader", "grade", "--tier", "cpu", "--from", source, "--results", str(GRADED))
    if not file.is_file():
        raise RuntimeError(f"{source} was not graded: {_last_words(done)}")
    return reading.read(file)


def _solutions(python: Path) -> tuple[float, float]:
    """Grade the solutions; return their points, and how many can be reached without a GPU."""
    run = _graded(python, "solutions")
    return run.points, run.graded_points


def _labs(python: Path) -> tuple[float, float]:
    """Grade the skeletons; return how many items are open TODOs, and how many there are."""
    items = [item for lab in _graded(python, "grader/course/skeletons/labs").labs for item in lab.items]
    return sum(item.verdict in (Verdict.NOT_STARTED, Verdict.NOT_GRADED) for item in items), len(items)


def _specimens(python: Path) -> tuple[float, float]:
    """Grade every specimen; return how many got their verdict, and how many there are.

    What was printed of the others is kept beside the environment. RuntimeError with it if no test ran.
    """
    done = _run(python, "pytest", "-q", *SPECIMENS)
    (python.parent.parent / "specimens.txt").write_text(done.stdout, "utf-8")
    counts = {word: int(count) for count, word in _COUNTS.findall(done.stdout)}
    if not counts:
        raise RuntimeError(f"no specimen was graded: {_last_words(done)}")
    return counts.get("passed", 0), sum(counts.values())


def _notebooks(python: Path) -> tuple[float, float]:
    """Run every notebook; return 1 or 0, of 1."""
    return float(_run(python, "grader", "notebooks", "--check").returncode == 0), 1.0


def _run(python: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module in the course's folder."""
    return subprocess.run(
        [str(python), "-m", module, *arguments],
        cwd=catalog.ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr).strip()[-500:]


CHECKS: dict[str, Callable[[Path], tuple[float, float]]] = {
    "labs": _labs,
    "solutions": _solutions,
    "specimens": _specimens,
    "notebooks": _notebooks,
}


def measure(
    versions: Sequence[str], checks: Sequence[str], found: Toolchains | None
) -> Iterator[tuple[str, Check, Toolchains]]:
    """Yield each version's checks one by one, with the record so far; what `found` has of others is kept.

    Raises RuntimeError if a version cannot be installed or a check leaves no results, and
    subprocess.TimeoutExpired after LIMIT_S.
    """
    known = {
        one.triton: {each.name: each for each in one.checks} for one in (found.toolchains if found else ())
    }
    for version in versions:
        python = environment(version)
        for name in checks:
            began = time.monotonic()
            held, of = CHECKS[name](python)
            done = Check(
                name=name,
                held=held,
                of=of,
                seconds=round(time.monotonic() - began, 1),
                date=now(),
                machine=machine(None, "not looked for"),
            )
            known.setdefault(version, {})[name] = done
            kept = tuple(
                Toolchain(triton=one, checks=tuple(all_.values())) for one, all_ in sorted(known.items())
            )
            yield version, done, Toolchains(toolchains=kept)


def load(path: Path = RECORD) -> Toolchains | None:
    """Return the record in a file; None if there is none. Raises pydantic's ValueError if it is broken."""
    return Toolchains.model_validate_json(path.read_bytes()) if path.is_file() else None

"""Export the collected files for a similarity checker: one folder per submission, and the skeletons.

JPlag compares the folders below one root and ignores matches with the base code. Where version 6 or newer is
installed as `jplag`, it is run, and the pairs that it found most similar are listed.
"""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

from grader.classroom import records
from grader.classroom.intake import expected_files
from grader.classroom.records import Intake, RunRecord
from grader.classroom.run_folder import RunFolder
from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.system.files import read_bytes
from grader.system.processes import LimitError, run_tool
from grader.system.text import printable

SUBMISSIONS, BASE, REPORT = "submissions", "base", "report"
LEAST_PERCENT = 70  # a pair below is not listed; JPlag's report has all of them
LIMIT_S = 900.0  # for one lab: JPlag compares each pair
LONGEST_NAME = 120  # of the folder of partners, in characters
CODE = (".py", ".cu", ".cuh")  # plots and records are similar because the same command makes them


def write(run_folder: Path, out: Path) -> dict[str, int]:
    """Write the folders; return their number by lab. Raises FileExistsError for a folder in use.

    Partners have one folder, because the files that they share would be the most similar pair. The base code
    is the skeletons as released, so that given code does not count as copied.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out}: has files in it already; name a new folder")
    run = RunFolder(run_folder)
    record = records.read(run.run, RunRecord)
    counts = {}
    groups = _groups(run, record)
    for unit in record.units:
        counts[unit.name] = sum(_submission(run, unit.name, group, out) for group in groups)
        _base(unit.name, out / unit.name / BASE)
    return counts


def _groups(run: RunFolder, record: RunRecord) -> list[list[str]]:
    """Return those who handed in together, each group once; most are groups of one."""
    groups = {}
    for student in record.students:
        intake = run.student(student).intake
        partners = records.read(intake, Intake).partners if intake.exists() else []
        group = sorted({student, *partners}.intersection(record.students))
        groups[tuple(group)] = group
    return [*groups.values()]


def _submission(run: RunFolder, unit: str, group: list[str], out: Path) -> bool:
    """Write the files of one submission; return whether there are any."""
    folder = run.student(group[0])
    if not folder.intake.exists():
        return False
    name = "+".join(group)
    if len(name) > LONGEST_NAME:
        name = f"{group[0]}+{len(group) - 1} partners"
    paths = [Path(one.path) for one in records.read(folder.intake, Intake).files]
    code = [path for path in paths if path.parts[0] == unit and path.suffix in CODE]
    for path in code:
        target = out / unit / SUBMISSIONS / name / path.relative_to(unit)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_bytes(folder.files / path))
    return bool(code)


def _base(unit: str, out: Path) -> None:
    copies = catalog.ROOT / COPIES  # as released; the files in labs/ may have been changed
    root = copies if unit == catalog.CAPSTONE.name else copies / "labs"
    (collected,) = (one for one in expected_files.units() if one.unit.name == unit)
    for name in collected.files:
        source = root / unit / name
        if source.suffix in CODE and source.is_file():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / name)


@dataclass(frozen=True)
class Pair:
    """Two submissions whose files JPlag found similar; the percentage is its average similarity."""

    first: str
    second: str
    percent: float


class JplagError(RuntimeError):
    """JPlag did not finish; the message is its last line."""


def command(folder: Path) -> list[str]:
    """Return the command that compares the submissions of one lab, in the folder that `write` made for it."""
    base = ["-bc", str(folder / BASE)] if (folder / BASE).is_dir() else []
    options = ["-l", "python3", *base, "-r", str(folder / REPORT), "--csv-export", "--mode", "RUN"]
    return ["jplag", *options, str(folder / SUBMISSIONS)]


def compare(folder: Path) -> list[Pair] | None:
    """Run JPlag on one lab; return the pairs from 70 percent on, the most similar first; None without JPlag.

    Raises JplagError if it fails, also for a lab with fewer than two submissions.
    """
    if not shutil.which("jplag"):
        return None
    try:
        done = run_tool(command(folder), LIMIT_S, merged=True)
    except (OSError, LimitError) as error:
        raise JplagError(str(error)) from None
    listed = folder / REPORT / "results.csv"
    if done.code or not listed.is_file():
        said = printable(done.text).strip().splitlines()
        raise JplagError(said[-1] if said else f"exit code {done.code}, and no {listed}")
    return _pairs(listed)


def _pairs(listed: Path) -> list[Pair]:
    with listed.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    try:
        pairs = [
            Pair(row["submissionName1"], row["submissionName2"], 100 * float(row["averageSimilarity"]))
            for row in rows
        ]
    except (KeyError, TypeError, ValueError):
        raise JplagError(f"{listed} does not have the columns of JPlag 6") from None
    similar = [pair for pair in pairs if pair.percent >= LEAST_PERCENT]
    return sorted(similar, key=lambda pair: (-pair.percent, pair.first, pair.second))

"""What must hold before a class is graded; AskedError says what does not."""

from __future__ import annotations

from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import hidden_check
from grader.classroom.grading import machines as sites
from grader.classroom.records import RunRecord
from grader.classroom.run_folder import RunFolder
from grader.results.models import TIMING_PROTOCOL
from grader.system import gpu


class AskedError(Exception):
    """The request cannot be carried out; the message is the reason."""


def own(out: Path) -> None:
    """Create the run folder, readable by its owner alone. Raises AskedError for a folder of other files."""
    out.mkdir(0o700, parents=True, exist_ok=True)
    names = {path.name for path in out.iterdir()}
    if names and not names & {"run.json", "state"}:
        raise AskedError(f"{out}: no folder of a class run, and not empty; give another OUT=")
    out.chmod(0o700)


def must_build(hidden: Path) -> None:
    """Raise AskedError with each hidden case whose inputs cannot be built, HiddenError for a bad file."""
    unbuilt = hidden_check.unbuilt(hidden)
    if unbuilt:
        raise AskedError("\n".join(["hidden cases cannot be built; nothing was graded", *unbuilt]))


def begun(folder: RunFolder) -> RunRecord | None:
    """Return run.json of the earlier commands, None before the first. Raises AskedError if it is damaged."""
    try:
        return records.read(folder.run, RunRecord)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise AskedError(f"{folder.run}: {error}") from None


def same_protocol(before: RunRecord | None) -> None:
    """Raise AskedError if the run was begun with another way to time: percentages of two do not compare."""
    if before and before.timing_protocol != TIMING_PROTOCOL:
        raise AskedError(
            f"this run was begun with timing protocol {before.timing_protocol}, and this checkout has "
            f"{TIMING_PROTOCOL}: end the term with grader {before.grader}, or give another OUT="
        )


def tier_of(tier: str, site: sites.Site) -> str:
    """Return the tier to grade on. Raises AskedError for the GPU tier without a GPU."""
    if site.tier:
        return site.tier if tier == "auto" else tier
    found, missing = gpu.find()
    if tier == "gpu" and not found:
        raise AskedError(f"--tier gpu: {missing}; --tier cpu grades what needs no GPU")
    return tier if tier != "auto" else "gpu" if found else "cpu"

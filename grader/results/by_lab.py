"""The last whole run of each lab, in a file of its own: grading one lab does not forget the others."""

from __future__ import annotations

from pathlib import Path

from grader.course.spec import Verdict
from grader.results import reading
from grader.results.models import LabResult, Results
from grader.system.files import replace

NO_MISTAKE = (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED, Verdict.GRADER_FAULT)
FOLDER = "labs"  # below the folder that a run writes its reports to


def keep(results: Results, folder: Path) -> None:
    """Write each lab of a run to a file below `folder`, in place of its earlier run. Raises OSError.

    A lab of which no case was run keeps its earlier one.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for lab in (one for one in results.labs if one.was_run):
        replace(folder / FOLDER / f"{lab.folder}.json", _of_one(results, lab).model_dump_json())


def read(folder: Path) -> dict[str, Results]:
    """Return the kept run of each lab, by the name of the lab's folder.

    A file that cannot be read as one is left out: its lab has no result then.
    """
    found = {}
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            results = reading.read(path)
        except (OSError, ValueError):
            continue
        if [lab.folder for lab in results.labs] == [path.stem]:
            found[path.stem] = results
    return found


def failed(folder: Path) -> set[str]:
    """Return the ids of the items that were wrong in the kept runs."""
    labs = (lab for results in read(folder).values() for lab in results.labs)
    items = (item for lab in labs for item in lab.items if item.blocked is None)
    return {item.id for item in items if item.verdict not in NO_MISTAKE}


def _of_one(results: Results, lab: LabResult) -> Results:
    """Return the run as if only this lab had been graded."""
    return results.model_copy(
        update={
            "labs": (lab,),
            "points": lab.points,
            "graded_points": lab.graded_points,
            "not_graded_points": lab.not_graded_points,
            "max_points": lab.max_points,
        }
    )

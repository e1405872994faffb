"""The steps of run_autograder in Gradescope's container before and after the grader.

    python -m grader.classroom.platforms.container_run take|tell /autograder SCRATCH

A fault of the grader or the container leaves no results.json. Gradescope then reports that the autograder
failed, gives no score, and shows the output to the course staff.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grader.classroom import records
from grader.classroom.intake import expected_files
from grader.classroom.intake.entries import Entry, HandedIn
from grader.classroom.intake.intake import collect
from grader.classroom.intake.roster import Roster
from grader.classroom.intake.student_ids import Key, Named
from grader.classroom.platforms import gradescope
from grader.classroom.platforms.autograder import ASKED, GPU, HIDDEN, Asked, GpuScores
from grader.classroom.platforms.gradescope import GradescopeResults
from grader.classroom.platforms.merge import merged
from grader.classroom.records import Intake
from grader.classroom.run_folder import RunFolder, StudentFolder
from grader.course import catalog
from grader.grading.options import RunOptions
from grader.results import points, reading
from grader.results.models import MOST_BYTES
from grader.system.exit_codes import FAULT
from grader.system.files import read_bytes, replace

NAME = "submission"
COMMAND = "command"  # file in the scratch folder: the command to run, one word per line


def take(root: Path, scratch: Path, course: Path = catalog.ROOT) -> int:
    """Collect the files of a submission and write the command that grades them; return 0."""
    asked = Asked.model_validate_json((course / ASKED).read_bytes())
    (root / "results" / "results.json").unlink(missing_ok=True)
    units = expected_files.chosen(asked.labs, expected_files.units(course))
    handed_in = HandedIn(NAME, [Entry(root / NAME, Named((Key(NAME),)))])
    if collect(handed_in, Roster(), units, RunFolder(scratch)).problem:
        return 0
    options = RunOptions(
        labs=asked.labs, source=str(_folder(scratch).files), tier="cpu", results=scratch / "results",
        hidden=course / HIDDEN if (course / HIDDEN).exists() else None,
    )  # fmt: skip
    command = [f"{asked.limit_s:.0f}", sys.executable, "-m", "grader", *options.arguments()]
    (scratch / COMMAND).write_text("".join(f"{word}\n" for word in command), "utf-8")
    return 0


def tell(root: Path, scratch: Path, course: Path = catalog.ROOT) -> int:
    """Write results.json and return 0; return 3 without a file if the grader did not finish."""
    out, intake = root / "results" / "results.json", records.read(_folder(scratch).intake, Intake)
    if intake.problem:
        labs = Asked.model_validate_json((course / ASKED).read_bytes()).labs
        most = sum(one.unit.max_points for one in expected_files.chosen(labs, expected_files.units(course)))
        _write(out, _refused(intake, most))
        return 0
    file = scratch / "results" / "results.json"
    if not file.exists():
        print("no results: nothing was graded, and no points are taken off")
        return FAULT
    results = reading.read(file)
    if (course / GPU).exists():
        scores = GpuScores.model_validate_json(read_bytes(course / GPU, MOST_BYTES))
        results = merged(results, scores.keyed)
    converted = gradescope.convert(results)
    words = "\n".join([converted.output, *_uploaded(intake)])
    _write(out, converted.model_copy(update={"output": words}))
    return 0


def _uploaded(intake: Intake) -> list[str]:
    """Say which uploaded file was graded as which, and which may be an answer and was not graded."""
    graded = [f"uploaded: {one.found}, graded as {one.path}" for one in intake.files]
    others = [one for one in intake.left_out if one.look or one.unit]
    return [
        *(graded or ["no uploaded file was graded"]),
        *(f"not graded: {one.found}: {one.why}" for one in others),
    ]


def _folder(scratch: Path) -> StudentFolder:
    return RunFolder(scratch).student(NAME)


def _refused(intake: Intake, most: float) -> GradescopeResults:
    """Return the results of a submission that could not be opened safely: 0 points and the reason."""
    test = gradescope.Test(
        name="hand-in",
        number="1",
        score=0.0,
        max_score=points.rounded(most),
        status="failed",
        output=intake.problem,
    )
    words = f"Nothing was graded: {intake.problem}"
    return GradescopeResults(score=0.0, output=words, tests=[test])


def _write(out: Path, results: GradescopeResults) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    replace(out, results.as_json())


if __name__ == "__main__":
    sys.exit({"take": take, "tell": tell}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))

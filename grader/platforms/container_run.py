"""What run_autograder does in Gradescope's container before and after the grader itself.

    python -m grader.platforms.container_run take|tell /autograder SCRATCH

A fault of the grader or of the container leaves no results.json: Gradescope says then that the autograder
failed, keeps the score open, and shows the course staff what was printed. No zero is given for it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grader import catalog
from grader.batch import models, wanted
from grader.batch.intake import HandedIn, take_in
from grader.batch.layout import RunFolder, StudentFolder
from grader.batch.models import Intake
from grader.batch.names import Named
from grader.batch.roster import Roster
from grader.cli_shared import FAULT
from grader.files import read_bytes, replace
from grader.platforms import gradescope
from grader.platforms.autograder import ASKED, GPU, HIDDEN, Asked, GpuScores
from grader.platforms.merge import merged
from grader.results import MOST_BYTES, Results

NAME = "submission"
COMMAND = "command"  # in the scratch folder: what to run, a word a line


def take(root: Path, scratch: Path, course: Path = catalog.ROOT) -> int:
    """Copy the collected files out of what was handed in, and say with which command they are graded."""
    asked = Asked.model_validate_json((course / ASKED).read_bytes())
    (root / "results" / "results.json").unlink(missing_ok=True)
    units = wanted.chosen(asked.labs, wanted.units(course))
    handed_in = HandedIn(NAME, [(root / NAME, Named((NAME,)))])
    if take_in(handed_in, Roster(), units, RunFolder(scratch)).problem:
        return 0
    command = [f"{asked.limit_s:.0f}", sys.executable, "-m", "grader", "grade", "--lab", asked.labs]
    command += ["--from", str(_folder(scratch).files), "--tier", "cpu", "--results", str(scratch / "results")]
    command += ["--hidden", str(course / HIDDEN)] if (course / HIDDEN).exists() else []
    (scratch / COMMAND).write_text("".join(f"{word}\n" for word in command), "utf-8")
    return 0


def tell(root: Path, scratch: Path, course: Path = catalog.ROOT) -> int:
    """Write results.json; 3, and no file, where the grader did not come to its end."""
    out, intake = root / "results" / "results.json", models.read(_folder(scratch).intake, Intake)
    if intake.problem:
        labs = Asked.model_validate_json((course / ASKED).read_bytes()).labs
        most = sum(one.unit.max_points for one in wanted.chosen(labs, wanted.units(course)))
        _write(out, _refused(intake, most))
        return 0
    file = scratch / "results" / "results.json"
    if not file.exists():
        print("no results: nothing is graded, and no points are taken off")
        return FAULT
    results = Results.model_validate_json(read_bytes(file, MOST_BYTES))
    if (course / GPU).exists():
        scores = GpuScores.model_validate_json(read_bytes(course / GPU, MOST_BYTES))
        results = merged(results, scores.keyed)
    converted = gradescope.convert(results)
    left_out = [f"\nleft out: {one.found}: {one.why}" for one in intake.left_out if one.unit]
    _write(out, converted | {"output": "".join([converted["output"], *left_out])})
    return 0


def _folder(scratch: Path) -> StudentFolder:
    return RunFolder(scratch).student(NAME)


def _refused(intake: Intake, most: float) -> dict:
    """The results of a submission that could not be opened safely."""
    test = {
        "name": "hand-in",
        "number": "1",
        "score": 0.0,
        "max_score": round(most, 4),
        "status": "failed",
        "output": intake.problem,
        "output_format": "text",
        "visibility": "visible",
    }
    words = f"Nothing was graded: {intake.problem}"
    return {"score": 0.0, "output": words, "output_format": "text", "tests": [test]}


def _write(out: Path, results: dict) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    replace(out, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit({"take": take, "tell": tell}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))

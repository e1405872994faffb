"""Read the results of a run, and write its HTML page."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from grader.report.page.render import render
from grader.results import reading
from grader.results.models import MOST_BYTES, Results
from grader.system import files
from grader.system.text import one_line

PAGE = "report.html"


class ReportError(Exception):
    """No page can be written; the message says in one line why, and what to do."""


def read(path: Path) -> Results:
    """Read the results in a file, or in the folder that a run wrote; ReportError if there are none."""
    file = path if path.suffix == ".json" else path / "results.json"
    try:
        data = files.read_bytes(file, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ReportError(f"{file}: no graded run found; run `make grade` first") from None
    except OSError as error:
        raise ReportError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ReportError(f"{file}: {error}") from None
    try:
        return reading.parse(data)
    except reading.NewerSchemaError as error:
        raise ReportError(f"{file}: {error}; use the version of the grader that wrote it") from None
    except ValueError as error:
        why = files.finding(error) if isinstance(error, ValidationError) else one_line(str(error))
        words = f"{file}: not a results file of this grader ({why})"
        raise ReportError(f"{words}; run `make grade` to write a new one") from None


def write(results: Results, out: Path) -> None:
    """Write the page completely or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files.replace(out, render(results))

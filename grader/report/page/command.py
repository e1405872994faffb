"""Read the results of a run, and write its page beside them."""

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
    """Why there is no page, and what to do about it, in one line."""


def read(path: Path) -> Results:
    """The results in a file, or in the folder that a run wrote; ReportError where there are none."""
    file = path if path.suffix == ".json" else path / "results.json"
    try:
        data = files.read_bytes(file, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise ReportError(f"{file}: no run is stored there; `make grade` makes one") from None
    except OSError as error:
        raise ReportError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ReportError(f"{file}: {error}") from None
    try:
        return reading.parse(data)
    except reading.NewerSchemaError as error:
        raise ReportError(f"{file}: {error}; take the grader that wrote it") from None
    except ValueError as error:
        why = files.finding(error) if isinstance(error, ValidationError) else one_line(str(error))
        words = f"{file}: these are no results of this grader ({why})"
        raise ReportError(f"{words}; `make grade` writes them again") from None


def write(results: Results, out: Path) -> None:
    """The page, complete or not there at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files.replace(out, render(results))

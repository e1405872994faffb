"""Read the results of a run, and write its page beside them."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from grader import files
from grader.page.render import render
from grader.results import MOST_BYTES, SCHEMA_VERSION, Results

PAGE = "report.html"


class ReportError(Exception):
    """Why there is no page, and what to do about it, in one line."""


class _Version(BaseModel):
    """What is read before anything else: a newer grader may have written fields that are unknown here."""

    schema_version: int


def read(path: Path) -> Results:
    """The results in a file, or in the folder that a run wrote; ReportError where there are none."""
    file = path if path.suffix == ".json" else path / "results.json"
    try:
        data = files.read_bytes(file, MOST_BYTES)
        made_by = _Version.model_validate_json(data)
        if made_by.schema_version > SCHEMA_VERSION:
            words = f"schema version {made_by.schema_version}, and this grader knows {SCHEMA_VERSION}"
            raise ReportError(f"{file}: {words}; take the grader that wrote it")
        return Results.model_validate_json(data)
    except (FileNotFoundError, NotADirectoryError):
        raise ReportError(f"{file}: no run is stored there; `make grade` makes one") from None
    except OSError as error:
        raise ReportError(f"{file}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        words = f"{file}: these are no results of this grader ({files.finding(error)})"
        raise ReportError(f"{words}; `make grade` writes them again") from None
    except ValueError as error:
        raise ReportError(f"{file}: {error}") from None


def write(results: Results, out: Path) -> None:
    """The page, complete or not there at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files.replace(out, render(results))

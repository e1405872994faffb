"""Render the page of a graded run from its results; a student's text cannot become markup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from grader.report.page import failures, marks, plots, roof, view
from grader.report.page.next_step import next_step
from grader.report.terminal import readme_of, word
from grader.results import points
from grader.results.models import Results
from grader.system.text import printable


def render(results: Results, notes: Sequence[str] = ()) -> str:
    """Return one HTML file with its styles and pictures; the same results give the same bytes.

    `notes` are sentences shown below the points, such as what being late costs.
    """
    score = points.score_of(results.items)
    return (
        environment()
        .get_template("report.html")
        .render(
            results=results,
            score=score,
            notes=notes,
            labs=view.labs_of(results, score),
            files=view.files_of(results),
            next_step=next_step(results),
            under_the_roof=roof.under_the_roof(results),
            roof=roof.plot(results),
        )
    )


def environment(*folders: Path) -> Environment:
    """Return the jinja environment of the page's templates; templates in `folders` take precedence."""
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "word": word,
        "shape_of": view.shape_of,
        "readme_of": readme_of,
        "rounds_plot": plots.rounds_plot,
        "gallery": failures.gallery,
        "left_out": failures.LEFT_OUT,
        "map_plot": plots.map_plot,
        "map_words": plots.map_words,
        "mark": marks.mark,
        "symbols": marks.symbols,
    }
    environment.filters |= {"points": points.text, "spaced": view.spaced, "short": failures.short}
    return environment


def _clean(value: object) -> object:
    """Remove control characters and bidirectional marks from text; markup and numbers stay unchanged."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

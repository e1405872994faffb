"""The figures of the course, and measured numbers with the record that they come from."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog

FOLDER = catalog.ROOT / "notebooks" / "figures"
SOURCES = FOLDER / "src"
SHARED = "figure"  # figure.js and figure.css are part of every figure


@dataclass(frozen=True)
class Figure:
    """One interactive figure: a module of this package defines it as FIGURE, `src/NAME.js` draws it.

    `compute` returns the data of the page, a dict of JSON values; `draw` returns the static SVG for the data.
    `height_px` is the height of the figure in a notebook at a width of 900 px.
    """

    title: str
    lead: str  # one or two sentences under the title: what to try, what it shows
    reading: tuple[str, ...]  # how to read it, one string for each point; where the numbers come from
    compute: Callable[[], dict]
    draw: Callable[[dict], str]
    height_px: int
    screenshot_step: int = 3  # steps before the screenshot is taken

    def __post_init__(self):
        for name in ("title", "lead", "reading"):
            if not getattr(self, name):
                raise ValueError(f"a figure needs its {name}")
        if self.height_px < 200 or self.screenshot_step < 0:
            raise ValueError("height_px must be at least 200, and screenshot_step at least 0")


def names(sources: Path = SOURCES) -> list[str]:
    """Return the names of the figures, from their scripts; FileNotFoundError if there are none."""
    found = sorted(path.stem for path in sources.glob("*.js") if path.stem != SHARED)
    if not found:
        raise FileNotFoundError(f"{sources}: no script of a figure is in this folder")
    return found


def load(name: str) -> Figure:
    """Return the figure of a name; KeyError if there is none."""
    if name not in names():
        raise KeyError(f"no figure is called {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"grader.site.figures.{name}").FIGURE


def measured(value: float, unit: str, source: Path) -> dict:
    """Return a measured number for the data of a page: its value, its unit, and the record it comes from."""
    return {"value": value, "unit": unit, "source": source.relative_to(catalog.ROOT).as_posix()}

"""What a figure is, which figures there are, and how a measured number says where it was recorded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog

FOLDER = catalog.ROOT / "notebooks" / "figures"
SOURCES = FOLDER / "src"
SHARED = "figure"  # figure.js and figure.css serve all of them


@dataclass(frozen=True)
class Figure:
    """One interactive figure: a module of this package holds it as FIGURE, `src/NAME.js` draws it.

    `compute` makes what the page is given, a dict of what JSON can hold; `draw` makes the static SVG from it.
    `height_px` is the room that the figure takes in a notebook, 900 px wide.
    """

    title: str
    lead: str  # one or two sentences under the title: what to try, and what it shows
    reading: tuple[str, ...]  # how to read it, one point a sentence; where the numbers come from
    compute: Callable[[], dict]
    draw: Callable[[dict], str]
    height_px: int
    screenshot_step: int = 3  # steps from the first one to the state that a screenshot shows

    def __post_init__(self):
        for name in ("title", "lead", "reading"):
            if not getattr(self, name):
                raise ValueError(f"a figure needs its {name}")
        if self.height_px < 200 or self.screenshot_step < 0:
            raise ValueError("a figure is at least 200 px high, and its screenshot shows a step of it")


def names(sources: Path = SOURCES) -> list[str]:
    """The figures, by their scripts; FileNotFoundError where there is none."""
    found = sorted(path.stem for path in sources.glob("*.js") if path.stem != SHARED)
    if not found:
        raise FileNotFoundError(f"{sources}: no figure has a script there")
    return found


def load(name: str) -> Figure:
    """One figure by name; KeyError where there is none of that name."""
    if name not in names():
        raise KeyError(f"no figure is called {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"grader.site.figures.{name}").FIGURE


def measured(value: float, unit: str, source: Path) -> dict:
    """A measured number as the data of a page hold it: its unit, and the record it comes from."""
    return {"value": value, "unit": unit, "source": source.relative_to(catalog.ROOT).as_posix()}

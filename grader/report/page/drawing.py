"""SVG pictures for pages, by svg.py; their shapes have classes, which the page's style sheet colours.

svg.py does not escape text. All text, which may be a student's, is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal

import svg
from markupsafe import escape

from grader.system.text import printable

Points = Iterable[tuple[float, float]]
Anchor = Literal["start", "middle", "end"]


class Drawing:
    """A picture of `width` by `height` pixels; `words` describe it to readers who cannot see it.

    `kinds` are class names, separated by spaces; `root` are further attributes of the svg element.
    """

    def __init__(
        self,
        width: float,
        height: float,
        words: str,
        kinds: str = "plot",
        xmlns: str | None = None,
        **root: Any,
    ):
        self._shapes: list[svg.Element] = []
        self._root = svg.SVG(
            xmlns=xmlns, viewBox=svg.ViewBoxSpec(0, 0, number(width), number(height)), class_=_classes(kinds),
            extra={"role": "img", "aria-label": safe(words)}, elements=self._shapes, **root,
        )  # fmt: skip

    def add(self, element: svg.Element) -> None:
        """Add a shape of svg.py, none of whose attributes may be a student's text."""
        self._shapes.append(element)

    def rect(self, x: float, y: float, width: float, height: float, kinds: str, radius: float = 0) -> None:
        """Add a box; x and y are its upper left corner."""
        box = svg.Rect(
            x=number(x), y=number(y), width=number(width), height=number(height),
            rx=number(radius) if radius else None, class_=_classes(kinds),
        )  # fmt: skip
        self.add(box)

    def text(self, x: float, y: float, words: str, kinds: str = "", anchor: Anchor | None = None) -> None:
        """Add one line of text; y is its baseline, x its start, middle or end, as `anchor` says."""
        letters = safe(words)
        self.add(svg.Text(text=letters, x=number(x), y=number(y), text_anchor=anchor, class_=_classes(kinds)))

    def line(self, x1: float, y1: float, x2: float, y2: float, kinds: str) -> None:
        """Add a straight line."""
        kind = _classes(kinds)
        self.add(svg.Line(x1=number(x1), y1=number(y1), x2=number(x2), y2=number(y2), class_=kind))

    def polyline(self, points: Points, kinds: str) -> None:
        """Add straight lines from point to point."""
        flat: list[Any] = [number(value) for point in points for value in point]
        self.add(svg.Polyline(points=flat, class_=_classes(kinds)))

    def path(self, steps: Sequence[svg.PathData], kinds: str) -> None:
        """Add a path of lines and curves."""
        self.add(svg.Path(d=list(steps), class_=_classes(kinds)))

    def circle(self, x: float, y: float, radius: float, kinds: str, words: str = "") -> None:
        """Add a disc around its centre; `words` are its tooltip."""
        title: list[svg.Element] | None = [svg.Title(text=safe(words))] if words else None
        disc = svg.Circle(
            cx=number(x), cy=number(y), r=number(radius), elements=title, class_=_classes(kinds)
        )  # fmt: skip
        self.add(disc)

    def __html__(self) -> str:
        """Return the picture as part of a page; the same shapes give the same text."""
        return str(self._root)


def number(value: float) -> Decimal:
    """Round a number to at most six significant digits."""
    return Decimal(f"{value:.6g}")


def safe(words: str) -> str:
    """Escape text for use between tags and in quoted attributes."""
    return str(escape(printable(words)))


def _classes(kinds: str) -> list[str] | None:
    return kinds.split() or None

"""The marks beside verdicts: each has a different shape, so that colour is not needed to tell them apart."""

from __future__ import annotations

from typing import Any

import svg
from markupsafe import Markup

BOX = svg.ViewBoxSpec(0, 0, 16, 16)
HIDDEN = {"aria-hidden": "true", "focusable": "false"}


def _outline(width: float, **more: object) -> dict[str, Any]:
    return {"fill": "none", "stroke": "currentColor", "stroke_width": width, **more}


def _path(*steps: svg.PathData, **style: Any) -> svg.Path:
    return svg.Path(d=list(steps), **style)


SHAPES: dict[str, list[svg.Element]] = {
    "pass": [
        svg.Circle(cx=8, cy=8, r=7, **_outline(1.6)),
        _path(svg.M(4.5, 8.2), svg.l(2.4, 2.5), svg.l(4.6, -5), **_outline(2)),
    ],
    "fail": [
        svg.Rect(x=1, y=1, width=14, height=14, fill="currentColor"),
        _path(svg.M(4.5, 4.5), svg.l(7, 7), svg.m(0, -7), svg.l(-7, 7), **_outline(2, stroke="var(--page)")),
    ],
    "slow": [_path(svg.M(8, 1.5), svg.L(15, 14.5), svg.H(1), svg.Z(), **_outline(1.8))],
    "todo": [_path(svg.M(8, 1), svg.l(7, 7), svg.l(-7, 7), svg.l(-7, -7), svg.Z(), **_outline(1.8))],
    "open": [svg.Circle(cx=8, cy=8, r=6.5, **_outline(1.6, stroke_dasharray=[2.6, 2.5]))],
    "fault": [
        _path(
            svg.M(4.5, 1), svg.h(7), svg.L(15, 4.5), svg.v(7), svg.L(11.5, 15), svg.h(-7), svg.L(1, 11.5),
            svg.v(-7), svg.Z(), **_outline(1.6),
        ),
        _path(svg.M(8, 3.8), svg.v(5.4), svg.m(0, 1.6), svg.v(2), **_outline(2)),
    ],
}  # fmt: skip


def symbols() -> Markup:
    """Return the shapes that `mark` refers to; needed once in each page."""
    shapes: list[svg.Element] = [
        svg.Symbol(id=f"v-{name}", viewBox=BOX, elements=shape) for name, shape in SHAPES.items()
    ]
    sheet = svg.SVG(xmlns=None, width=0, height=0, style="position:absolute", extra=HIDDEN, elements=shapes)
    return Markup(sheet)


def mark(shape: str) -> Markup:
    """Return the mark with one shape, as high as the letters beside it."""
    return Markup(svg.SVG(xmlns=None, class_=["mark"], extra=HIDDEN, elements=[svg.Use(href=f"#v-{shape}")]))

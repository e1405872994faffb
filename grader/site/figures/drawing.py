"""Static pictures of the figures: self-contained SVG files with the colours of the figures."""

from __future__ import annotations

import svg

from grader.report.page import drawing
from grader.site.figures.palette import static

_STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 14px; }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
.small { font-size: 12px; } .large { font-size: 20px; font-weight: 650; } .strong { font-weight: 650; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
.none { fill: none; } .dash { stroke-dasharray: 4 3; }
"""


class Drawing(drawing.Drawing):
    """A picture of `width` by `height` with a background; `words` describe it.

    `kinds` are classes of the style: f-load fills and s-load strokes with a colour of the palette;
    small, large, strong, code, mid and end are for text, none and dash for shapes.
    """

    def __init__(self, width: int, height: int, title: str, words: str):
        super().__init__(width, height, f"{title}. {words}", kinds="", xmlns=svg.SVG.xmlns)
        self.add(svg.Title(text=drawing.safe(title)))
        self.add(svg.Desc(text=drawing.safe(words)))
        self.add(svg.Style(text=_STYLE + static()))
        self.rect(0, 0, width, height, "f-paper")

    def svg(self) -> str:
        """Return the text of the file, one line for each shape; equal shapes give equal text."""
        return self.__html__().replace("><", ">\n<") + "\n"

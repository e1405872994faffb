"""Static pictures as SVG: shapes that name their colours, with text that is escaped."""

from __future__ import annotations

from xml.etree import ElementTree

from grader.figures.palette import static

_STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-size: 14px; }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
.small { font-size: 12px; } .large { font-size: 20px; font-weight: 650; } .strong { font-weight: 650; }
.mid { text-anchor: middle; } .end { text-anchor: end; }
.none { fill: none; } .dash { stroke-dasharray: 4 3; }
"""


class Drawing:
    """A picture of `width` by `height`, drawn on paper of its own; `words` say what it shows.

    `kinds` are classes of the style: f-load fills and s-load strokes with a colour of the palette;
    small, large, strong, code, mid and end are for text, none and dash for shapes.
    """

    def __init__(self, width: int, height: int, title: str, words: str):
        self._root = ElementTree.Element(
            "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img"
        )
        self._root.set("aria-label", f"{title}. {words}")
        self._add("title", text=title)
        self._add("desc", text=words)
        self._add("style", text=_STYLE + static())
        self.rect(0, 0, width, height, "f-paper")

    def rect(self, x: float, y: float, width: float, height: float, kinds: str, radius: float = 0) -> None:
        """A box from its upper left corner."""
        self._add("rect", kinds, x=x, y=y, width=width, height=height, rx=radius)

    def text(self, x: float, y: float, words: str, kinds: str = "f-ink") -> None:
        """One line of text; y is where its letters stand."""
        self._add("text", kinds, text=words, x=x, y=y)

    def line(self, x1: float, y1: float, x2: float, y2: float, kinds: str = "s-line") -> None:
        """A straight line."""
        self._add("line", kinds, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, d: str, kinds: str) -> None:
        """A path in SVG's own words."""
        self._add("path", kinds, d=d)

    def circle(self, x: float, y: float, radius: float, kinds: str) -> None:
        """A disc around its centre."""
        self._add("circle", kinds, cx=x, cy=y, r=radius)

    def svg(self) -> str:
        """The picture as text, the same for the same shapes."""
        ElementTree.indent(self._root)
        return ElementTree.tostring(self._root, encoding="unicode") + "\n"

    def _add(self, tag: str, kinds: str = "", text: str | None = None, **attributes) -> None:
        element = ElementTree.SubElement(self._root, tag)
        if kinds:
            element.set("class", kinds)
        for name, value in attributes.items():
            if tag != "rect" or name != "rx" or value:
                element.set(name, value if isinstance(value, str) else f"{value:.6g}")
        element.text = text

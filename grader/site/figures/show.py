"""Show a figure in a notebook: `show("program_life")`, or its static picture if scripts do not run."""

from __future__ import annotations

import base64

from markupsafe import escape

from grader.site.figures.figure import FOLDER, load


class Shown:
    """The notebook output of a figure: the picture, covered by the interactive page in a frame.

    A viewer that strips frames and scripts, such as GitHub's, shows the picture.
    """

    def __init__(self, name: str, height_px: int | None = None):
        figure = load(name)
        self._title = figure.title
        self._height_px = height_px or figure.height_px
        self._page = (FOLDER / f"{name}.html").read_text("utf-8")
        self._picture = (FOLDER / f"{name}.svg").read_bytes()

    def __repr__(self) -> str:
        return f"Interactive figure: {self._title}"

    def _repr_html_(self) -> str:
        title, page = escape(self._title), escape(self._page)
        picture = base64.b64encode(self._picture).decode()
        # Sandboxed: the page can reach neither the notebook nor another figure.
        return (
            f'<div style="position:relative;overflow:hidden;min-height:{self._height_px}px">'
            f'<img alt="Static picture of the figure: {title}" style="width:100%"'
            f' src="data:image/svg+xml;base64,{picture}">'
            f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{page}" style="position:absolute;'
            'inset:0;width:100%;height:100%;border:0;background:Canvas"></iframe></div>'
        )


def show(name: str, height_px: int | None = None) -> Shown:
    """Return a figure of the course, for the last expression of a cell; a KeyError lists the names.

    `height_px` is the height of the frame; by default the figure's height at the width of a notebook.
    """
    return Shown(name, height_px)

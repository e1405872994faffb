"""Show a figure in a notebook: `show("program_life")`, with its static picture where scripts do not run."""

from __future__ import annotations

import base64

from markupsafe import escape

from grader.site.figures.figure import FOLDER, load


class Shown:
    """What a notebook displays: the picture, and over it the live page in a frame of its own.

    A viewer that strips frames and scripts, as GitHub's does, is left with the picture.
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
        # Sandboxed: the page cannot reach the notebook, and two figures cannot meet.
        return (
            f'<div style="position:relative;overflow:hidden;min-height:{self._height_px}px">'
            f'<img alt="Static picture of the figure: {title}" style="width:100%"'
            f' src="data:image/svg+xml;base64,{picture}">'
            f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{page}" style="position:absolute;'
            'inset:0;width:100%;height:100%;border:0;background:Canvas"></iframe></div>'
        )


def show(name: str, height_px: int | None = None) -> Shown:
    """One of the course's figures, as the last expression of a cell; KeyError names those there are.

    `height_px` is the room it gets; by default what it needs at the width of a notebook.
    """
    return Shown(name, height_px)

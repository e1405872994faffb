"""Write a figure as one self-contained HTML page, and its static picture as SVG."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grader.site.figures.figure import FOLDER, SHARED, SOURCES, Figure, load, names
from grader.site.figures.palette import variables
from grader.system import files

# In a script element these texts end the element, or change where the parser finds its end.
_ENDS_A_SCRIPT = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_IMPORT = re.compile(r"^import\s.*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_IN_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def embedded(data: dict) -> Markup:
    """Return the data as JSON that no HTML parser mistakes for markup; ValueError for NaN."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Markup(re.sub("[<>&\u2028\u2029]", lambda found: _IN_JSON[found[0]], text))


def script(name: str) -> Markup:
    """Return figure.js and NAME.js as one module, because an inline script cannot import another.

    ValueError if a script contains text that would end its element.
    """
    shared, own = ((SOURCES / f"{stem}.js").read_text("utf-8") for stem in (SHARED, name))
    text = _EXPORT.sub("", f"{shared}\n{_IMPORT.sub('', own)}")
    found = _ENDS_A_SCRIPT.search(text)
    if found:
        raise ValueError(
            f"{name}.js or {SHARED}.js: {found[0]} cannot be part of a page; split the string in two"
        )
    return Markup(text)


def style(name: str) -> Markup:
    """Return the colours, figure.css, and NAME.css if it exists; ValueError if one contains `</`."""
    sheets = [SOURCES / f"{stem}.css" for stem in (SHARED, name)]
    text = variables() + "".join(sheet.read_text("utf-8") for sheet in sheets if sheet.is_file())
    if "</" in text:
        raise ValueError(f"{name}.css or {SHARED}.css: </ cannot be part of a page")
    return Markup(text)


def render(name: str, figure: Figure, data: dict, picture: str) -> str:
    """Return the page of a figure; `picture` is its static SVG, shown if scripts do not run."""
    loader = FileSystemLoader(SOURCES)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("page.html").render(
        figure=figure, data=embedded(data), script=script(name), style=style(name), picture=Markup(picture)
    )


def written(name: str, figure: Figure, data: dict) -> dict[str, str]:
    """Return the text of each file of one figure, by file name."""
    picture = figure.draw(data)
    return {f"{name}.html": render(name, figure, data, picture), f"{name}.svg": picture}


def write(folder: Path = FOLDER) -> list[Path]:
    """Write all pages and pictures; return the paths of those that changed."""
    changed = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        figure = load(name)
        for file, text in written(name, figure, figure.compute()).items():
            path = folder / file
            if not path.is_file() or path.read_bytes() != text.encode():
                files.replace(path, text)
                changed.append(path)
    return changed

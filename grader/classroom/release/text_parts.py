"""Read the strings of JSON and the text of pages, with parsers of the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser


def parts(text: str) -> Iterator[str]:
    """Yield the text itself, the strings of a JSON document line after line, and the text of a page."""
    yield text
    start = text.lstrip()[:1]
    if start in ("{", "["):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        yield "\n".join(_strings(document))
    elif start == "<":
        page = _Page()
        page.feed(text)
        page.close()
        yield "".join(page.found)


def _strings(value: object) -> Iterator[str]:
    """Yield every string and number of a JSON document in its order; a list of lines is one text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        yield ("" if all(one.endswith("\n") for one in value[:-1]) else "\n").join(value)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


class _Page(HTMLParser):
    """Collects the text of a page or a drawing, without its tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        """Keep a piece of text."""
        self.found.append(data)

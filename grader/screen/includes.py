"""What a CUDA C++ file may include: a list of headers, which keeps the work in the file itself.

This reads the text and says quickly which line is meant; `codegen/native_check.py` decides by what the
compiler opened.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from grader.course.native_headers import HEADERS

# Comments and strings are one token each, so that what only looks like a directive inside of them is none.
_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t\v\f]*(?:#|%:|\?\?=)[ \t\v\f]*(\w+)(.*)$", re.MULTILINE)
_INCLUDED = re.compile(r'\s*(?:<([^>\n]+)>|"([^"\n]+)")\s*')


def unwanted(source: str, given: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """Line and words of each directive that brings in what is neither in HEADERS nor `given`."""
    # A backslash at the end of a line joins it to the next one, even in the middle of a word.
    parts = re.split(r"\\\r?\n", source)
    joined = list(itertools.accumulate(len(part) for part in parts[:-1]))
    text = _TOKENS.sub(_blank, "".join(parts))
    for found in _DIRECTIVE.finditer(text):
        line = 1 + text.count("\n", 0, found.start(1)) + sum(at <= found.start(1) for at in joined)
        name, rest = found[1], found[2]
        if name == "include":
            named = _INCLUDED.fullmatch(rest)
            if not named:
                yield line, "an include names its header in <> or quotes, and by no macro"
            elif (named[1] or named[2]) not in {*HEADERS, *given}:
                yield line, f"{named[1] or named[2]} is not on the list of headers"
        elif name == "line" or name.isdigit():
            yield line, "#line is not permitted: messages give the lines of the file"
        elif name in ("include_next", "import", "embed"):
            yield line, f"#{name} is not permitted"


def _blank(token: re.Match[str]) -> str:
    """Blanks of the same length and with the same line breaks; what may be the name of a header stays."""
    if re.fullmatch(r'"[\w./+-]+"', token[0]):
        return token[0]
    return re.sub(r"[^\n]", " ", token[0])

"""Find answers a second time, by shared sequences of tokens, without the search that made the release.

Three comparisons: WORDS names and numbers in a row; SHAPE tokens with operators, where names may differ if
they differ consistently; and tables of numbers. Tokens are stored as one character
each, so that a sequence is a substring and a lookup is a set's.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.release.decodings import decodings
from grader.classroom.release.number_tables import Row, table_in, tables_of
from grader.classroom.release.text_parts import parts
from grader.course.skeleton import render, render_native

WORDS, FEWEST = 12, 8  # a shorter task counts as a whole if it has FEWEST names and numbers
SHAPE = 32
NAMES, KINDS = 8, 8  # a shape has so many places of free names, and so many different tokens, or it is a list
GARBLED = 0.1  # of a text's characters; more, and it is a picture or an archive
UNKNOWN, FREE = "\0", "v"
OTHERS = ("wrong", "variants", "kernel-log")  # folders of whole files that are answers, wrong or different
_KNOWN = re.compile(rf"[^{UNKNOWN}]{{{SHAPE},}}")
_BLOB = re.compile(r"[\w+/=-]{160,}")  # base64, which is searched decoded
_TOKEN = re.compile(r"\.?[^\W\d]\w*|0x[\da-fA-F]+|\d+(?:\.\d+)?|[^\w\s]")
_BEGIN = re.compile(r"^\s*(?:#|//) (?:BEGIN TODO|BONUS) (\d+):")
_END = re.compile(r"^\s*(?:#|//) END (?:TODO|BONUS) (\d+)\s*$")
_COMMENT = {"#": re.compile(r"(?m)(?:^|(?<=\s))#(?: .*|$)"), "//": re.compile(r"(?m)//.*$")}
# The margin of a patch, a quote or a listing.
_MARGIN = re.compile(r"(?m)^[ \t]*(?:\d+[ \t]*[:|.)]?[ \t]|[+>|*-]+[ \t]?)")
_HEADER = re.compile(r"def \w+\([^()]*(?:\([^()]*\)[^()]*)*\)[^:\n]*:|extern \"C\"[^{;]*")  # given in READMEs
# Names that stay when a solution is rewritten: the language's, Triton's and CUDA's.
_FIXED = frozenset(keyword.kwlist) | {
    *("range", "min", "max", "torch", "triton", "tl", "float", "int", "half", "const", "void", "unsigned"),
    *("auto", "static", "constexpr", "blockIdx", "threadIdx", "blockDim", "gridDim"),
}


class Tokens(dict[str, str]):
    """A character for each token, given by `code` at its first use."""

    def __init__(self, code: Callable[[str], str]) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, token: str) -> str:
        """Keep and return the character of a token that has none yet."""
        self[token] = self._code(token)
        return self[token]


@dataclass(frozen=True)
class Fingerprints:
    """Sequences of the answers, each with its file."""

    known: dict[str, str] = field(default_factory=dict)  # a character for each token of the answers
    words: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)  # short tasks
    shapes: dict[str, dict[Row, str]] = field(default_factory=dict)
    tables: dict[frozenset[Row], str] = field(default_factory=dict)

    def learn(self, token: str) -> None:
        """Give a token a character."""
        self.known.setdefault(token.removeprefix("."), chr(0x100 + len(self.known)))

    def word_code(self, token: str) -> str:
        """Return the character of a name or number, nothing for other tokens."""
        word = token.removeprefix(".")
        return self.known.get(word, UNKNOWN) if word[:1].isalnum() or word[:1] == "_" else ""

    def shape_code(self, token: str) -> str:
        """Return the character of a token, FREE for a name that a copy may change."""
        free = (token[0].isalpha() or token[0] == "_") and token not in _FIXED
        return FREE if free else self.known.get(token.removeprefix("."), UNKNOWN)

    def found_in(self, data: bytes) -> str | None:
        """Return the file whose answer the bytes contain, or None."""
        seen: set[str] = set()
        codes = Tokens(self.word_code), Tokens(self.shape_code)
        for decoded in decodings(data):
            for part in parts(decoded):
                text = _BLOB.sub(" ", part)
                if text not in seen and text.count("\ufffd") <= GARBLED * len(text):
                    seen.add(text)
                    source = self._in_text(text, *codes, seen)
                    if source:
                        return source
        return None

    def _in_text(self, text: str, words: Tokens, shapes: Tokens, seen: set[str]) -> str | None:
        source = table_in(text, self.tables)
        for plain in {} if source else dict.fromkeys(_spellings(text)):
            tokens = _TOKEN.findall(plain)
            source = self._words_in("".join(map(words.__getitem__, tokens)), seen)
            source = source or self._shape_in("".join(map(shapes.__getitem__, tokens)), tokens, seen)
            if source:
                break
        return source

    def _words_in(self, row: str, seen: set[str]) -> str | None:
        """Return the file of a sequence in the row. Stretches in `seen` were searched before."""
        for run in set(row.split(UNKNOWN)) - seen:
            seen.add(run)
            for at in range(len(run) - WORDS + 1):
                source = self.words.get(run[at : at + WORDS])
                if source:
                    return source
        return next((source for whole, source in self.whole.items() if whole in row), None)

    def _shape_in(self, row: str, tokens: list[str], seen: set[str]) -> str | None:
        """Return the file of a shape in the row, whose tokens decide whether names differ consistently."""
        for run in _KNOWN.finditer(row):
            names = [
                token for token, code in zip(tokens[slice(*run.span())], run[0], strict=True) if code == FREE
            ]
            if f"{run[0]}{names}" in seen:
                continue
            seen.add(f"{run[0]}{names}")
            for at in range(run.start(), run.end() - SHAPE + 1):
                found = self.shapes.get(row[at : at + SHAPE])
                source = found.get(_pattern(row[at : at + SHAPE], tokens[at : at + SHAPE])) if found else None
                if source:
                    return source
        return None


def _spellings(text: str) -> Iterator[str]:
    """Yield the text as it is, and without margins and comments."""
    yield text
    bare = _MARGIN.sub("", text)
    yield bare
    for comment in _COMMENT.values():
        yield comment.sub("", bare)


def _pattern(shape: str, tokens: list[str]) -> Row:
    """Return for each free name the number of its first place: equal for consistent renaming."""
    first: dict[str, int] = {}
    free = [token for token, code in zip(tokens, shape, strict=True) if code == FREE]
    return tuple(first.setdefault(name, len(first)) for name in free)


def collect(root: Path) -> Fingerprints:
    """Return the fingerprints of a checkout's solutions. Raises FileNotFoundError if it has none."""
    found = Fingerprints()
    texts = {
        path: path.read_text("utf-8", errors="replace")
        for path in sorted((root / "solutions").rglob("*"))
        if path.suffix in (".py", ".cu", ".cuh")
    }
    others, given = [], Fingerprints(found.known)
    for path, text in texts.items():
        native, name = path.suffix != ".py", str(path.relative_to(root))
        skeleton = _skeleton(path, text)
        if skeleton is None:
            others.append((name, text, native))
            continue
        _add(given, name, skeleton, native, header=True)
        for task in tasks(text):
            _add(found, name, task, native, task=True)
    without_last, without_first = (
        {place: {key[cut] for key in getattr(given, place)} for place in ("words", "shapes")}
        for cut in (slice(-1), slice(1, None))
    )
    for name, text, native in others:
        own = Fingerprints(found.known)
        _add(own, name, text, native)
        for place in ("words", "shapes"):
            known, ours, theirs = (getattr(one, place) for one in (found, own, given))
            for key, value in ours.items():
                # A single token beside what is given is no answer: any word may stand there.
                beside = key[1:] in without_last[place] or key[:-1] in without_first[place]
                if key not in theirs and not beside:
                    known.setdefault(key, value)
    if not found.words:
        raise FileNotFoundError(f"no answer below {root}, so none to look for")
    return found


def tasks(text: str) -> list[str]:
    """Return the code between the marks of every task and bonus, without the comments below BEGIN."""
    found, lines, number = [], [], None
    for line in text.splitlines():
        begin, end = _BEGIN.match(line), _END.match(line)
        if number is None and begin:
            number, lines = begin[1], []
        elif number is not None and end and end[1] == number:
            found.append("\n".join(lines))
            number = None
        elif number is not None and (lines or not re.match(r"\s*(#|//)", line)):
            lines.append(line)
    return found


def _skeleton(path: Path, text: str) -> str | None:
    """Return what students get of a solution; None where the whole file is an answer."""
    if set(OTHERS) & set(path.parts):
        return None
    try:
        return (render if path.suffix == ".py" else render_native)(text)
    except (ValueError, SyntaxError):
        return None


def _add(
    to: Fingerprints, name: str, code: str, native: bool, *, task: bool = False, header: bool = False
) -> None:
    """Add the sequences of a piece of code; `header` keeps the heads of functions."""
    bare = _COMMENT["//" if native else "#"].sub("", code if header else _HEADER.sub(" ", code))
    tokens = _TOKEN.findall(bare)
    for token in tokens:
        to.learn(token)
    row = "".join(map(to.word_code, tokens))
    digits = {to.known[token] for token in tokens if token.isdigit()}
    for at in range(len(row) - WORDS + 1):
        if task or not digits.issuperset(row[at : at + WORDS]):
            to.words.setdefault(row[at : at + WORDS], name)
    if task and FEWEST <= len(row) < WORDS:
        to.whole[row] = name
    shape = "".join(map(to.shape_code, tokens))
    for at in range(len(shape) - SHAPE + 1):
        window = shape[at : at + SHAPE]
        if window.count(FREE) >= NAMES and len(set(window)) >= KINDS:
            pattern = _pattern(window, tokens[at : at + SHAPE])
            to.shapes.setdefault(window, {}).setdefault(pattern, name)
    if task and not native:
        to.tables.update(dict.fromkeys(tables_of(code), name))

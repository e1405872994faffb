"""The tokens of a CUDA C++ file as the compiler gets them from the preprocessor, with places and brackets."""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MARKER = re.compile(r'#(?:line)? *(\d+) "((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(
    r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:\\.|[^"\\])*"'
    r"|(?:u8|[uUL])?'(?:\\.|[^'\\])*'|[^\W\d][\w$]*|\$[\w$]*|\.?\d(?:[eEpP][+-]|'?[\w.])*"
    r"|<<<|>>>|->|::|==|!=|<:|:>|<%|%>|\S",
    re.DOTALL,
)
_DIGRAPHS = {"<:": "[", ":>": "]", "<%": "{", "%>": "}"}
_CLOSES = {")": "(", "]": "[", "}": "{", ">>>": "<<<"}
NAME = re.compile(r"[^\W\d][\w$]*")
# In a line that claims to be of a header and is not in the headers.
_OF_CONCERN = re.compile(r"<<<|\b_*cu(da)?[A-Z]\w+")


@dataclass(frozen=True)
class Text:
    """The lines of a preprocessed text that are the student's own, each with its file and line."""

    lines: tuple[str, ...]
    places: tuple[tuple[str, int], ...]
    foreign: tuple[str, int] | None  # place of a line that claims to be of a header and is not


def own_text(preprocessed: str, folder: Path, headers: Iterable[str]) -> Text:
    """Return the student's part of a text preprocessed in `folder`; `headers` are texts of all headers."""
    known = {line.strip() for text in headers for line in text.splitlines()}
    home = f"{os.path.realpath(folder)}{os.sep}"
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    foreign, file, own, number, last = None, "", False, 0, ("", 0)
    for line in preprocessed.split("\n"):
        if marker := _MARKER.match(line):
            path = os.path.realpath(folder / marker[2].replace('\\"', '"').replace("\\\\", "\\"))
            file, number = os.path.basename(path), int(marker[1])
            own = path.startswith(home) and not marker[2].startswith("<")
            continue
        if own and not line.lstrip().startswith("#"):
            lines.append(line)
            places.append((file, number))
            last = (file, number)
        elif not own and foreign is None and line.strip() not in known and _OF_CONCERN.search(line):
            foreign = (last[0], last[1] + 1)
        number += 1
    return Text(tuple(lines), tuple(places), foreign)


@dataclass
class Program:
    """The tokens of a text, with their brackets."""

    tokens: list[str] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    opener: list[int] = field(default_factory=list)  # of each token, the bracket around it; -1 outside
    closer: dict[int, int] = field(default_factory=dict)  # of each opening bracket
    opening: dict[int, int] = field(default_factory=dict)  # of each closing bracket
    broken: int = -1  # the first closing bracket that closes nothing

    @classmethod
    def of(cls, text: Text) -> Program:
        """Return the tokens of a text, and its pairs of brackets."""
        self, stack = cls(), [-1]
        joined = "\n".join(text.lines)
        starts = [0]
        for line in text.lines:
            starts.append(starts[-1] + len(line) + 1)
        for found in _TOKEN.finditer(joined):
            place = text.places[bisect.bisect_right(starts, found.start()) - 1]
            token = _DIGRAPHS.get(found[0], found[0])
            inside = stack[-1] >= 0 and self.tokens[stack[-1]] == "<<<"
            for part in ">>>" if token == ">>>" and not inside else (token,):
                self._add(part, place, stack)
        if len(stack) > 1:
            self.broken = stack[-1]
        return self

    def _add(self, token: str, place: tuple[str, int], stack: list[int]) -> None:
        at = len(self.tokens)
        if token in _CLOSES:
            if stack[-1] >= 0 and self.tokens[stack[-1]] == _CLOSES[token]:
                self.opening[at] = stack[-1]
                self.closer[stack.pop()] = at
            elif self.broken < 0:
                self.broken = at
        self.tokens.append(token)
        self.places.append(place)
        self.opener.append(stack[-1])
        if token in _CLOSES.values():
            stack.append(at)

    def at(self, index: int) -> str:
        """Return a token, or "" outside of the text."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else ""

    def arguments(self, bracket: int) -> list[tuple[int, int]]:
        """Return the first token of each argument in a bracket and the token behind its last."""
        end = self.closer.get(bracket, bracket + 1)
        commas = [i for i in range(bracket + 1, end) if self.tokens[i] == "," and self.opener[i] == bracket]
        return list(zip([bracket + 1, *(i + 1 for i in commas)], [*commas, end], strict=True))

    def position(self, index: int) -> int:
        """Return which argument of its bracket a token is in, from 0."""
        bracket = self.opener[index]
        return sum(self.tokens[i] == "," and self.opener[i] == bracket for i in range(bracket + 1, index))

    def around(self, index: int) -> Iterator[int]:
        """Yield the brackets around a token, the innermost first, and -1."""
        while index >= 0:
            index = self.opener[index]
            yield index

    def alone(self, index: int) -> bool:
        """Return whether a token is an argument by itself."""
        bracket = self.opener[index]
        return bracket >= 0 and index - 1 in (bracket, self._comma(index - 1, bracket)) and (
            index + 1 in (self.closer.get(bracket), self._comma(index + 1, bracket))
        )  # fmt: skip

    def _comma(self, index: int, bracket: int) -> int:
        return index if self.at(index) == "," and self.opener[index] == bracket else -2

    def called(self, bracket: int) -> int:
        """Return the token of the name before a bracket, as in f(, f<1>( and (f)(; -1 if there is none."""
        index, wrapped = bracket - 1, self.at(bracket - 1) == ")"
        index -= wrapped
        if self.at(index) == ">":
            depth = 0
            while index >= 0:
                depth += {">": 1, "<": -1}.get(self.tokens[index], 0)
                index = self.opening.get(index, index) - 1
                if depth == 0 or self.at(index) in (";", "{", "}"):
                    break
        named = NAME.fullmatch(self.at(index)) and (not wrapped or self.at(index - 1) == "(")
        return index if named else -1

    def list_of(self, name: int) -> int:
        """Return the bracket of the call whose name is this token, as in f(, f<1>( and (f)(; -1: no call."""
        index = name + 1
        if self.at(index) == "<":
            depth = 0
            while index < len(self.tokens):
                depth += {"<": 1, ">": -1}.get(self.tokens[index], 0)
                index = self.closer.get(index, index) + 1
                if depth == 0 or self.at(index) in (";", "{", "}"):
                    break
        index += self.at(index) == ")" and self.at(name - 1) == "("
        return index if self.at(index) == "(" else -1

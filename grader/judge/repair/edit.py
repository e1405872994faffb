"""One edit of a file: what it replaces, and in words what is wrong with the old text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cached_property

from grader.judge.repair.source import Part, Source

GOES_AROUND = "or what it decides is wrong"
MADE_OF_IT = "or what is made of it"
WRONG_CONDITION = "is the wrong condition"
CHOOSES = "chooses what is wrong"
# Where more programs make a file right whose programs share the work.
LATER_TURNS = (
    "the first turn of a program is right, and later ones are not: what it keeps from one turn to the next, "
    "or how it steps there, is wrong"
)
CONDITION_OF_COPY = "is the wrong condition for a contiguous copy"
ASKS_NOTHING = "asks nothing of the layout of"  # in the mistake of a condition on the layout of others
ONE_OBJECT = "asks whether both are one object"
BEFORE = "_before"  # ends the name of what a value was
PARTIAL_BLOCK = "drops the last, partial block"
SET_ONCE = "set once, before the loop"
OUT_OF_LOOP = "and must not be"  # in the mistake of a statement that a loop runs too often
REMOVES = ("does not belong", "must not be")
MOST_QUOTED = 60  # characters of code in a sentence


@dataclass(frozen=True)
class Edit:
    """An edit of one place, or of several that have the same mistake.

    `mistake` completes "line N: "; it names what is wrong and not what to write instead. Of two edits that
    help, the one with the lower `rank` is believed: the more common mistake. `detail` is said in place of the
    mistake where both ways of a condition that it changes are shown to be right.
    """

    rank: int
    line: int
    mistake: str
    parts: tuple[Part, ...]
    detail: str = ""

    @cached_property
    def kind(self) -> str:
        """What is wrong, without the names and numbers of this file."""
        return re.sub(r"`[^`]*`|\d+", "", self.mistake)

    @property
    def is_local(self) -> bool:
        """Whether it changes the code of one line, and does not only leave that out or go around it.

        With any other edit some cases may be right though the mistake is elsewhere.
        """
        removes = any(words in self.kind for words in REMOVES) or self.goes_around
        return not removes and not self.is_of_several

    @property
    def is_of_several(self) -> bool:
        """Whether it changes the code of several lines in the same way."""
        return "(and so in line" in self.kind

    def avoiding(self) -> Edit:
        """Return this edit as one with which other kernels run: what is wrong may not run any more."""
        return self if self.goes_around else replace(self, mistake=f"{self.mistake}, {GOES_AROUND}")

    def seen_wrong(self) -> Edit:
        """Return this edit as one of a condition that lets run what is seen to be wrong."""
        begin, found, _ = self.mistake.partition(WRONG_CONDITION)
        return replace(self, mistake=f"{begin}{CHOOSES}") if found else self

    def with_more_programs(self) -> Edit:
        """Return this edit as one with which more programs share the work, so that each has fewer turns."""
        return replace(self, mistake=LATER_TURNS)

    def deciding(self, code: str) -> Edit:
        """Return this edit as one of `code`, with a neutral value of which the file is as right."""
        return replace(self, mistake=f"{quoted(code)} is wrong, {GOES_AROUND}")

    @property
    def goes_around(self) -> bool:
        """Whether what is wrong may not run with it, so that any other edit that mends is believed."""
        around = (GOES_AROUND, MADE_OF_IT)
        return any(words in self.kind for words in around) or self.mistake == LATER_TURNS

    @property
    def turns_off(self) -> bool:
        """Whether it lets a condition never hold."""
        return self.goes_around and all(text == "False" for _, text in self.parts)

    @classmethod
    def of_node(cls, source: Source, rank: int, node: ast.expr | ast.stmt, text: str, mistake: str) -> Edit:
        """Return the edit that writes `text` in place of one node of the file."""
        return cls(rank, node.lineno, mistake, ((source.span(node), text),))


def wrong_condition(code: str) -> str:
    """Return what is wrong where another condition mends: it may go around a mistake in what it lets run."""
    return f"{quoted(code)} {WRONG_CONDITION}, {GOES_AROUND}"


def wrong_maximum(code: str) -> str:
    """Return what is wrong where another maximum mends: with it nothing is rescaled, rightly or wrongly."""
    return f"the maximum {quoted(code)} is wrong, {MADE_OF_IT}"


def quoted(code: str) -> str:
    """Return code for a sentence, on one line and not too long."""
    flat = " ".join(code.split())
    return f"`{flat if len(flat) <= MOST_QUOTED else flat[: MOST_QUOTED - 3] + '...'}`"

"""Statements that cannot be wrong, as the tries of their edits show: those edits are left out.

A statement is right if an output that is right depends on it: other values there break that output. And it is
not what is wrong if no other value there changes a wrong output. A few tries of each statement show both.
"""

from __future__ import annotations

import ast
import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from grader.judge.repair.edit import Edit
from grader.judge.repair.source import Source

ENOUGH = 3  # tries of a statement, all with the same answer
NEVER = -(1 << 40)  # a try with another answer
BROKEN = 1e-2  # of its largest element, by which an output is no longer right


class Touched(NamedTuple):
    """What a try has changed of the outputs of the file as it was; None where the try does not show it."""

    wrong: bool | None = None  # whether an output that was wrong has other bits
    right: bool | None = None  # whether an output that was right is wrong now


class Relevance:
    """What the tries of one worker have shown of each statement."""

    def __init__(self, source: Source):
        found = (node for one in source.functions.values() for node in ast.walk(one.node))
        self._begins = sorted(source.span(node)[0] for node in found if isinstance(node, ast.stmt))
        self._tries, self._idle, self._breaks = Counter[int](), Counter[int](), Counter[int]()

    def is_new(self, edit: Edit) -> bool:
        """Return whether too few edits of a statement of this one were tried to know what depends on it."""
        return any(self._tries[at] < ENOUGH for at in self._statements(edit))

    def is_useless(self, edit: Edit) -> bool:
        """Return whether each statement that an edit changes cannot be wrong."""
        return all(max(self._idle[at], self._breaks[at]) >= ENOUGH for at in self._statements(edit))

    def note(self, edit: Edit, touched: Touched) -> None:
        """Note what a try of an edit has shown, if it changes one statement; another answer ends a doubt."""
        statements = self._statements(edit)
        if len(statements) != 1:
            return
        (at,) = statements
        self._tries[at] += 1
        if touched.wrong is not None:
            self._idle[at] += NEVER if touched.wrong else 1
        if touched.right is not None:
            self._breaks[at] += 1 if touched.right else NEVER

    def _statements(self, edit: Edit) -> set[int]:
        return {bisect.bisect_right(self._begins, begin) for (begin, _), _ in edit.parts}


def touched(
    before: Sequence[torch.Tensor],
    right: Sequence[bool],
    after: Sequence[torch.Tensor],
    written: Iterable[torch.Tensor | None],
) -> Touched:
    """Compare outputs with those `before`; `right` says which of these were right.

    `written` has masks of what a single program wrote, None if all ran. Nothing is known of an output of
    which nothing was written, nor of any if one is wrong and not finite.
    """
    changed, broken = list[bool](), list[bool]()
    for old, new, is_right, mask in zip(before, after, right, written, strict=True):
        if not is_right and not bool(torch.isfinite(old).all()):
            return Touched()
        one, other = (old, new) if mask is None else (old[mask], new[mask])
        if not one.numel():
            continue
        if is_right:
            most = float(one.abs().max())
            broken.append(not bool(((one - other).abs() <= BROKEN * most).all()))
        else:
            changed.append(not torch.equal(one, other))
    return Touched(any(changed) if changed else None, any(broken) if broken else None)

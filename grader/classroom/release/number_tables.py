"""Find tables of numbers, such as lists of configs, whatever the order of their columns."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping

ROWS, CELLS = 3, 3  # a table: at least ROWS rows with at least CELLS numbers each
MOST = 0.6  # of a table's rows
GAP = 40  # numbers between two rows of a table
APART = 2  # foreign numbers beside the head of a row, such as a group size that the autotuner prints
Row = tuple[int, ...]
_INTEGER = re.compile(r"(?<![\w.])(?:0x[\da-fA-F]+|\d+)(?:x\d+)*(?![\w.]*[\w])")


def table_in(text: str, tables: Mapping[frozenset[Row], str]) -> str | None:
    """Return the file of a table with MOST of its rows in the text, each at a place of its own."""
    numbers = [int(one, 0) for match in _INTEGER.findall(text) for one in _numbers(match)]
    for table, source in tables.items():
        if _rows_together(table, numbers) >= max(ROWS, MOST * len(table)):
            return source
    return None


def tables_of(code: str) -> Iterator[frozenset[Row]]:
    """Yield the lists of a task whose items have several integers each."""
    try:
        tree = ast.parse(textwrap.dedent(code))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        rows = frozenset(_integers(one) for one in items)
        if len(rows) >= ROWS and min(map(len, rows)) >= CELLS:
            yield rows


def _integers(item: ast.expr) -> Row:
    """Return the integers of an item of a list, in their order."""
    found = [one.value for one in ast.walk(item) if isinstance(one, ast.Constant)]
    return tuple(value for value in found if type(value) is int)


def _numbers(match: str) -> list[str]:
    """Return the numbers of `128x256x64`, or of one number; a leading 0 is no octal."""
    if match.startswith("0x"):
        return [match]
    return [one.lstrip("0") or "0" for one in match.split("x")]


def _rows_together(table: frozenset[Row], numbers: list[int]) -> int:
    """Return how many rows of a table stand near each other, their columns in one order, whichever it is."""
    heads: dict[Row, list[int]] = {}
    for at in range(len(numbers) - CELLS + 1):
        heads.setdefault(tuple(numbers[at : at + CELLS]), []).append(at)
    layouts = itertools.product(itertools.permutations(range(CELLS)), (True, False))
    return max(_rows_in_one_layout(table, numbers, heads, order, behind) for order, behind in layouts)


def _rows_in_one_layout(
    table: frozenset[Row], numbers: list[int], heads: Mapping[Row, list[int]], order: Row, behind: bool
) -> int:
    """Return how many rows stand near each other, with the columns behind the head, or else before it."""
    found = []
    for row in table:
        wide = len(row) - CELLS + APART
        for at in heads.get(tuple(row[column] for column in order), ()):
            beside = numbers[at + CELLS : at + CELLS + wide] if behind else numbers[max(0, at - wide) : at]
            if not Counter(row[CELLS:]) - Counter(beside):
                found.append((at, row))
    most, last = 0, -GAP
    taken: set[Row] = set()
    for at, row in sorted(found):
        taken = {row} if at - last > GAP else taken | {row}
        last, most = at, max(most, len(taken))
    return most

"""Select items by the sizes of a case, as a report prints them: pytest's own -k has no `=` and no comma."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

MOST_SHOWN = 6


def is_of_a_case(keyword: str) -> bool:
    """Return whether a selection names sizes, such as `n=7` or `rows=3,cols=2,fp32`."""
    return "=" in keyword or "," in keyword


def matches(keyword: str, name: str) -> bool:
    """Return whether an item's name has every part of a selection, such as `n=7` and `fp32`."""
    asked = {part.strip() for part in keyword.split(",") if part.strip()}
    return asked <= set(re.split(r"[/,]", name))


def nothing_matches(keyword: str, names: Sequence[str]) -> str:
    """Say that no item matches, and what is like it, or which functions there are."""
    parts = list(dict.fromkeys(part for name in names for part in re.split(r"[/,]", name)))
    like = [
        *dict.fromkeys(
            near
            for part in re.split(r"[,\s]+", keyword.strip())
            for near in difflib.get_close_matches(part, parts, MOST_SHOWN, 0.6)
        )
    ]
    functions = ", ".join(dict.fromkeys(name.split("/")[0] for name in names))
    there = f"like it: {', '.join(like[:MOST_SHOWN])}" if like else f"the functions are {functions}"
    return f"nothing matches -k {keyword!r}; {there}"

"""Write tables about the code into grader/README.md, the list of interfaces, and the drawing of the rooms.

A region of the page is between `<!-- BEGIN rooms -->` and `<!-- END -->`; the word after BEGIN names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from grader.course import catalog
from grader.site.architecture.drawing import draw
from grader.site.architecture.interfaces import Offer, offers
from grader.site.architecture.rooms import House, read
from grader.site.architecture.way import COMMAND, Way, trace
from grader.system import files

PAGE = Path("grader", "README.md")
DRAWING = Path("grader", "site", "architecture", "rooms.svg")
INTERFACES = Path("grader", "site", "architecture", "INTERFACES.md")
REGION = re.compile(r"(<!-- BEGIN (rooms|way|interfaces) -->\n).*?(<!-- END -->)", re.DOTALL)


def write(root: Path = catalog.ROOT) -> list[Path]:
    """Update the page, the drawing and the list of interfaces; return the paths of those that changed."""
    house, crossing, way = read(root), offers(root), trace(root)
    tables: dict[str, Callable[[], str]] = {
        "rooms": lambda: rooms_table(house),
        "way": lambda: way_table(way),
        "interfaces": lambda: interfaces_table(house, crossing),
    }
    page = REGION.sub(
        lambda match: match[1] + tables[match[2]]() + match[3], (root / PAGE).read_text("utf-8")
    )
    texts = {PAGE: page, DRAWING: draw(house, way), INTERFACES: interfaces_page(house, crossing)}
    changed = [root / path for path, text in texts.items() if _text(root / path) != text]
    for path in changed:
        files.replace(path, texts[path.relative_to(root)])
    return changed


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.is_file() else ""


def rooms_table(house: House) -> str:
    """Return one row for each room, top floor first, and whether the contract holds."""
    rows = []
    for number, floor in enumerate(house.floors, start=1):
        for name in floor:
            room = house.rooms[name]
            imported = [other for other in house.order if house.imports[name, other]]
            longest = f"`{room.longest}`, {room.longest_lines}"
            cells = (number, f"[`{name}/`]({name})", room.purpose, ", ".join(imported) or "nothing")
            rows.append((*cells, room.files, f"{room.lines:,}", f"{room.statements:,}", longest))
    rooms = house.rooms.values()
    total = (
        sum(one.files for one in rooms),
        sum(one.lines for one in rooms),
        sum(one.statements for one in rooms),
    )
    rows.append(("", "all", "", "", *(f"{one:,}" for one in total), ""))
    heads = ("floor", "room", "purpose", "imports", "files", "lines", "statements", "longest module, lines")
    words = (
        f"Imports between rooms: {sum(house.imports.values())} pairs of modules, {len(house.imports)} pairs "
        f"of rooms. Against the contract: {len(house.upward)}. Cycles: {len(house.cycles)}."
    )
    return "\n".join([_table(heads, rows, "rlllrrrl"), "", words, *_listed(house.upward, house.cycles), ""])


def _listed(*groups: Sequence[str]) -> list[str]:
    lines = list(dict.fromkeys(line for group in groups for line in group))
    return ["", *(f"* `{line}`" for line in lines)] if lines else []


def way_table(way: Way) -> str:
    """Return one row for each room, in the order in which a grading enters them."""
    rows = [
        (at, step.room, f"`{step.first_module}`", f"`{step.entered_from}`" if step.entered_from else "",
         step.modules, f"{step.calls_in:,}", f"{step.calls_between:,}")
        for at, step in enumerate(way.steps, start=1)
    ]  # fmt: skip
    between = sum(count for (caller, called), count in way.calls.items() if caller and caller != called)
    words = (
        f"`python -m grader {' '.join(COMMAND)}`, the judge's process: {len(way.first)} modules in "
        f"{len(way.steps)} rooms, {between:,} calls from one module to another, "
        f"{sum(way.between_rooms.values()):,} of them from one room to another."
    )
    heads = (
        "",
        "room",
        "first module",
        "called by",
        "modules",
        "calls from other rooms",
        "calls between its modules",
    )
    pairs = ", ".join(
        f"{caller} to {called} {count:,}" for (caller, called), count in way.between_rooms.most_common()
    )
    order = ", ".join(f"`{module}`" for module in way.first)
    more = [
        "<details>",
        "<summary>Each arrow, and the modules in order</summary>",
        "",
        f"{pairs}.",
        "",
        f"{order}.",
    ]
    return "\n".join([words, "", _table(heads, rows, "rlllrrr"), "", *more, "", "</details>", ""])


def interfaces_table(house: House, crossing: Sequence[Offer]) -> str:
    """Return one row for each room that others use, and the signatures with an untyped dict."""
    rows = []
    for name in house.order:
        own = [one for one in crossing if one.room == name]
        users = sorted({room for one in own for room in one.used_by})
        if own:
            untyped = sum(len(one.untyped) for one in own)
            rows.append(
                (f"`{name}/`", len(own), sum(len(one.signatures) for one in own), untyped, ", ".join(users))
            )
    heads = ("room", "functions and classes", "signatures", "with an untyped dict", "used by")
    found = [f"{one.module}: {signature}" for one in crossing for signature in one.untyped]
    return "\n".join([_table(heads, rows, "lrrrl"), *_listed(found), ""])


def interfaces_page(house: House, crossing: Sequence[Offer]) -> str:
    """Return every signature used across rooms, by room and module."""
    lines = [
        "# What each room offers to the others",
        "",
        "Written by `make architecture`: the public functions and classes that a module of another room",
        "names, each with the rooms that use it.",
    ]
    for name in house.order:
        own = [one for one in crossing if one.room == name]
        if not own:
            continue
        lines += ["", f"## {name}", "", house.rooms[name].purpose]
        for module, offered in groupby(own, key=lambda one: one.module):
            lines += ["", f"`{module}`", "", "```python"]
            for one in offered:
                first, *methods = one.signatures
                lines += [f"{first}  # {', '.join(one.used_by)}", *(f"    .{method}" for method in methods)]
            lines.append("```")
    return "\n".join([*lines, ""])


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], align: str) -> str:
    sides = ["---:" if side == "r" else "---" for side in align]
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(sides)}|", *lines[1:]])

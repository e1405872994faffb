"""The rooms as a picture: a row for each room, and lines to the rooms that it imports.

The rooms are on the left, top floor first, each with a bar as long as it has lines. Each room has a lane: a
line that comes down from the topmost room that imports it, and turns into it from the right. A dot on a lane
is an import, with the number of pairs of modules in it. One that breaks the contract is red.
"""

from __future__ import annotations

import svg

from grader.site.architecture.rooms import House
from grader.site.architecture.way import Way
from grader.site.figures.drawing import Drawing

LEFT, TOP = 24, 92
ROOMS_WIDTH = 490
ROW, BETWEEN_FLOORS = 52, 12
LANE = 42
BAR = 300  # of the largest room
LEAST_WIDTH = 1180  # of the legend


def draw(house: House, way: Way) -> str:
    """Return the picture as SVG."""
    order = house.order
    rows = _rows(house)
    lanes = {name: LEFT + ROOMS_WIDTH + 34 + LANE * at for at, name in enumerate(order)}
    width = max(max(lanes.values()) + 48, LEAST_WIDTH)
    height = max(rows.values()) + ROW + 64
    words = (
        f"{len(order)} rooms on {len(house.floors)} floors; {sum(house.imports.values())} imports between "
        f"them, {len(house.upward)} against the contract"
    )
    drawing = Drawing(width, height, "The rooms of the grader and their imports", words)
    _heading(drawing, width)
    for floor in house.floors:
        top, bottom = rows[floor[0]] - 4, rows[floor[-1]] + ROW - 4
        drawing.rect(LEFT - 12, top, width - 2 * (LEFT - 12), bottom - top, "f-panel", radius=8)
    for name in order:
        _lane(drawing, house, name, rows, lanes)
    for name in order:
        _room(drawing, house, name, rows[name], [step.room for step in way.steps])
        for imported in order:
            _dot(drawing, house, way, (name, imported), lanes[imported], rows[name])
    _legend(drawing, height - 40)
    return drawing.svg()


def _rows(house: House) -> dict[str, int]:
    """Return the y coordinate of the top of each room's row."""
    rows, at = {}, TOP
    for floor in house.floors:
        for name in floor:
            rows[name] = at
            at += ROW
        at += BETWEEN_FLOORS
    return rows


def _heading(drawing: Drawing, width: int) -> None:
    drawing.text(LEFT, 38, "The rooms of the grader", "f-ink large")
    words = "A room imports from the floors below its own. Follow a line from a dot down, then left."
    drawing.text(LEFT, 62, words, "f-quiet")
    drawing.line(LEFT - 12, 76, width - LEFT + 12, 76, "s-line")


def _room(drawing: Drawing, house: House, name: str, top: int, entered: list[str]) -> None:
    room = house.rooms[name]
    largest = max(one.lines for one in house.rooms.values())
    drawing.rect(LEFT, top + 4, max(4.0, BAR * room.lines / largest), 20, "f-accent-fill", radius=3)
    drawing.text(LEFT + 8, top + 19, name, "f-ink strong")
    drawing.text(
        LEFT + ROOMS_WIDTH, top + 19, f"{room.files} files, {room.lines:,} lines", "f-quiet small end"
    )
    drawing.text(LEFT + 8, top + 39, room.purpose.replace("`", ""), "f-quiet small")
    if name in entered:
        x = LEFT + 108
        drawing.circle(x, top + 14, 10, "f-accent")
        drawing.text(x, top + 18, str(entered.index(name) + 1), "f-paper small strong mid")


def _lane(drawing: Drawing, house: House, name: str, rows: dict[str, int], lanes: dict[str, int]) -> None:
    importers = [importer for importer, imported in house.imports if imported == name and importer in rows]
    if not importers:
        return
    x, y = lanes[name], rows[name] + 38
    above = [_dot_y(rows[one]) for one in importers if house.allows(one, name)]
    below = [_dot_y(rows[one]) for one in importers if not house.allows(one, name)]
    end = LEFT + ROOMS_WIDTH + 10
    if above:
        steps = [svg.M(x, min(above)), svg.V(y - 6), svg.Q(x, y, x - 6, y), svg.H(end + 8)]
        drawing.path(steps, "none s-edge")
    if below:
        steps = [svg.M(x, min(below)), svg.V(max(below)), svg.M(x, y), svg.H(end + 8)]
        drawing.path(steps, "none s-off")
    drawing.path([svg.M(end, y), svg.l(9, -5), svg.v(10), svg.Z()], "f-off" if below else "f-edge")
    drawing.text(x - 10, y - 5, name, "f-quiet small end")


def _dot(drawing: Drawing, house: House, way: Way, pair: tuple[str, str], x: int, top: int) -> None:
    count = house.imports[pair]
    if not count:
        return
    kind = "edge" if house.allows(*pair) else "off"
    if kind == "edge" and way.between_rooms[pair]:
        kind = "accent"
    y = _dot_y(top)
    drawing.circle(x, y, 8 + min(7.0, count / 5), f"f-{kind}")
    drawing.text(x, y + 4, str(count), "f-paper small strong mid")


def _dot_y(top: int) -> int:
    return top + 15


def _legend(drawing: Drawing, y: int) -> None:
    at = LEFT
    for kind, words in (
        (
            "accent",
            "imports through which a grading of lab 1 calls; the numbered rooms, in the order it enters them",
        ),
        ("edge", "other imports, as pairs of modules"),
        ("off", "imports that break the contract"),
    ):
        drawing.circle(at + 7, y, 7, f"f-{kind}")
        drawing.text(at + 20, y + 4, words, "f-quiet small")
        at += 44 + 6.2 * len(words)

"""The failures as the page shows them: place, values, text and map, within the size limits of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grader.course.spec import Verdict
from grader.report.page.plots import map_plot
from grader.report.terminal import FAULT_ADVICE, SHOWN_FRAMES, SHOWN_LINES, label_of
from grader.results.error_map import ErrorMap
from grader.results.findings import Frame
from grader.results.models import ItemResult

# Limits for one page: a run in which everything is wrong must not give a page of megabytes.
MOST_STROKES = 46_000  # of all maps
MOST_QUOTED = 60_000  # characters of errors and of what was printed
LEFT_OUT = "left out, for the size of this page: see results.json"
MOST_SMALL = 6  # maps side by side below the first of a group
MOST_LINE = 400  # characters of a line that a student's code wrote
MOST_PRINTED = 40  # lines of it


@dataclass(frozen=True)
class Failure:
    """One item that failed, with the place and the values of the first wrong element if it has one."""

    item: ItemResult
    label: str
    place: str
    yours: str
    expected: str
    text: list[str]  # further lines of an error
    frames: tuple[Frame, ...]
    printed: list[str]
    advice: tuple[str, ...]
    error_map: ErrorMap | None
    map_left_out: bool
    text_left_out: bool


def failures_of(items: Sequence[ItemResult]) -> dict[str, Failure]:
    """Return the failures by item id; beyond the page's limits they have no map or no text."""
    drawn = quoted = 0
    found = {}
    for item in items:
        one = _failure(item)
        drawn += _drawn(one)
        quoted += _quoted(one)
        found[item.id] = replace(
            one,
            error_map=one.error_map if drawn <= MOST_STROKES else None,
            map_left_out=one.error_map is not None and drawn > MOST_STROKES,
            text=one.text if quoted <= MOST_QUOTED else [],
            printed=one.printed if quoted <= MOST_QUOTED else [],
            text_left_out=_quoted(one) > 0 and quoted > MOST_QUOTED,
        )
    return found


def gallery(group: Sequence[Failure]) -> list[Failure]:
    """Return a few more of a group whose maps have several cells, to show a pattern over several sizes."""
    maps = [one for one in group[1:] if one.error_map and len("".join(one.error_map.cells)) > 1]
    return maps[:MOST_SMALL]


def _failure(item: ItemResult) -> Failure:
    first, *rest = item.where.splitlines() or [""]
    wrong = item.first_wrong
    return Failure(
        item=item,
        label=label_of(item),
        place=short(wrong.place if wrong else first),
        yours=wrong.yours if wrong else "",
        expected=wrong.expected if wrong else "",
        # Triton quotes the kernel first; the reason is at the end.
        text=[short(line) for line in rest[-SHOWN_LINES:]],
        frames=item.frames[:SHOWN_FRAMES],
        printed=[short(line) for line in item.printed.strip().splitlines()[:MOST_PRINTED]],
        advice=FAULT_ADVICE if item.verdict is Verdict.GRADER_FAULT else (),
        error_map=item.error_map,
        map_left_out=False,
        text_left_out=False,
    )


def short(line: str) -> str:
    """Cut a line after MOST_LINE characters, and say how many are missing."""
    return line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]} ... {len(line) - MOST_LINE:,} more"


def _drawn(one: Failure) -> int:
    return sum(map(len, map_plot(one.error_map).strokes.values())) if one.error_map else 0


def _quoted(one: Failure) -> int:
    return sum(map(len, [*one.text, *one.printed]))

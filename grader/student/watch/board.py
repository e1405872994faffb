"""Show the watcher's state: one screen on a terminal, one line for each event if output is piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from grader.course.items import CODEGEN, CORRECTNESS, DOCUMENT, SPEED
from grader.course.spec import Verdict
from grader.report.terminal import STYLES, details_of, word
from grader.results.models import ItemResult
from grader.results.points import Score as Points
from grader.student.watch.child import Child
from grader.student.watch.scores import SETTLED, Score, Scores, Watched

COLUMNS = {CORRECTNESS: "correctness", CODEGEN: "code", SPEED: "speed", DOCUMENT: "document"}
ROWS_BESIDE = 6  # rows of the screen for the heading, the state, the total and blank lines
SHOWN_DETAILS = 8  # lines under one failure


class Board:
    """The screen with the current state; without a terminal, each event is printed as a line instead."""

    def __init__(self, console: Console, heading: str):
        self._console, self._heading = console, heading
        self._live = Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> Board:
        if self._console.is_terminal:
            self._live.start()
        else:
            self.event(self._heading)
        return self

    def __exit__(self, *_) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def event(self, words: str) -> None:
        """Print an event as a line; on a terminal the state shows it instead."""
        if not self._console.is_terminal:
            self._console.print(Text(f"watch: {words}"), soft_wrap=True)

    def show(self, state: Text, troubles: Sequence[str], going: Child | None, scores: Scores) -> None:
        """Redraw the screen; `troubles` are what prevents files from being graded."""
        if not self._console.is_terminal:
            return
        parts = [Text(self._heading, style="bold"), _state(state, going)]
        parts += [*(Text(trouble, style="red", no_wrap=True) for trouble in troubles), Text()]
        parts += [_table(scores, busy=going is not None), Text(total_words(scores), style="bold")]
        room = self._console.height - ROWS_BESIDE - len(scores.watched) - 1 - len(troubles)
        shown = [tuple(failure_lines(one, score)) for one, score in scores.failures()]
        # Functions of one file have the same open TODOs: list them once.
        shown = [lines for at, lines in enumerate(shown) if lines[1:] not in [one[1:] for one in shown[:at]]]
        lines = [line for lines in shown for line in lines]
        if found := going.state.found if going else ():  # of what was saved last
            lines = [(line, "") for words in found for line in words.split("\n")]
        parts += [Text(), *(Text(line, style=style, no_wrap=True) for line, style in lines[: max(0, room)])]
        self._live.update(Group(*parts), refresh=True)


def _state(state: Text, going: Child | None) -> Table | Text:
    if going is None or not going.state.items:
        return state
    run = going.state
    row = Table.grid(padding=(0, 1))
    row.add_row(
        state,
        ProgressBar(total=run.items, completed=run.done, width=20),
        Text(f"{run.done}/{run.items}  {going.seconds:.0f} s"),
        Text(run.words, style="dim", no_wrap=True),
    )
    return row


def _table(scores: Scores, busy: bool) -> Table:
    kinds = [kind for kind in COLUMNS if any(kind in _kinds(one) for one in scores.watched)]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("exercise", *(COLUMNS[kind] for kind in kinds)):
        table.add_column(name, no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("saved", no_wrap=True)
    points_of = scores.points
    for one in scores.watched:
        score = scores.scores.get(one.key)
        name = f"{one.lab}  {one.exercise.name}"
        if score is None:
            table.add_row(
                Text(name), *(Text() for _ in kinds), "", Text("grading" if busy else "", style="dim")
            )
            continue
        fresh = scores.is_fresh(one)
        cells = [_cell([item for item in score.result.items if item.kind == kind]) for kind in kinds]
        saved = Text(score.saved if fresh else f"{score.saved}, an earlier save")
        table.add_row(
            Text(name), *cells, Text(points_words(points_of[one.key])), saved, style="" if fresh else "dim"
        )
    return table


def _kinds(one: Watched) -> set[str]:
    has = {CODEGEN: one.exercise.codegen, SPEED: one.exercise.speed}
    own = CORRECTNESS if hasattr(one.exercise, "cases") else DOCUMENT
    return {own} | {kind for kind, there in has.items() if there}


def _cell(items: Sequence[ItemResult]) -> Text:
    graded = [item for item in items if item.verdict not in (Verdict.NOT_GRADED, Verdict.GRADER_FAULT)]
    if not graded:
        fault = any(item.verdict is Verdict.GRADER_FAULT for item in items)
        return Text(
            "grader fault" if fault else "not graded" if items else "", style="red" if fault else "dim"
        )
    worst = next((item for item in graded if item.verdict not in SETTLED), None)
    passed = sum(item.verdict is Verdict.PASS for item in graded)
    if worst is None:
        return Text(f"ok {passed} of {len(graded)}", style="green")
    words = word(worst).lower()
    count = "" if worst.verdict is Verdict.NOT_STARTED or worst.blocked else f" {passed} of {len(graded)}"
    style = "dim" if worst.blocked else STYLES.get(worst.verdict.value, "red")
    return Text(f"{words}{count}", style=style)


def points_words(points: Points) -> str:
    """Return `30 / 30`, the earned of the graded points; empty if none were graded."""
    return f"{points.earned} / {points.graded}" if points.graded else ""


def total_words(scores: Scores) -> str:
    """Return the line with all earned points, of those that were graded."""
    if not scores.scores:
        return "score: none yet"
    total = scores.total
    more = f", {total.not_graded} not graded" if total.not_graded else ""
    earlier = "" if scores.is_complete else ", partly from an earlier save"
    return f"score {total.earned} / {total.graded}{more}{earlier}"


def failure_lines(one: Watched, score: Score) -> Iterator[tuple[str, str]]:
    """Yield the first failure of an exercise as the report shows it, and how many more there are."""
    failed = [item for item in score.result.items if item.verdict not in SETTLED]
    looked_at = [item for item in failed if not item.blocked]
    first = (looked_at or failed)[0]
    more = f"   and {len(looked_at) - 1} more" if len(looked_at) > 1 else ""
    name = "" if first.verdict is Verdict.NOT_STARTED else f"  {first.name}{more}"
    yield f"{one.exercise.name}  {word(first)}{name}", STYLES.get(first.verdict.value, "red")
    folder = one.entry.folder.name
    details = list(details_of(first, folder, one.exercise.file))
    yield from ((line, "") for line in details[:SHOWN_DETAILS])

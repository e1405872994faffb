"""What finished TODOs of a file do, each checked alone while others are open: see `todo_checks`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from grader.course.spec import Exercise
from grader.course.submission import Submission
from grader.course.todo_checks import TodoCheck, checks_of
from grader.course.todos import bound_names, lines_of_region, parse, placeholders_in
from grader.judge.trial import Trial
from grader.worker.submission_worker import SubmissionWorker

LIMIT_S = 20.0
MOST_NAMES = 8  # that a TODO sets
MOST_TILES = 3  # that are named


def results(worker: SubmissionWorker, exercise: Exercise, submission: Submission) -> list[str]:
    """Return a sentence for each finished TODO that can be checked alone, in their order.

    What does not run is left out: it is told when all TODOs are done.
    """
    found = []
    for check in checks_of(exercise.name, submission):
        numbers = dict(_called(worker, exercise, check, submission.text))
        words = _of_tiles(check, numbers) if check.tiles[0] else _of_names(check, numbers)
        if words:
            found.append(f"TODO {check.number}, alone ({check.sizes}): {words}")
    return found


def _called(
    worker: SubmissionWorker, exercise: Exercise, check: TodoCheck, text: str
) -> Iterator[tuple[str, list[float]]]:
    """Give the numbers of the call for each name that the TODO sets; for "" if it has no such names."""
    for name in _names(check, text) if check.kernel else [""]:
        edited = _shown(check, text, name) if name else text
        if edited is None or worker.start() or worker.edit(edited + check.code, LIMIT_S):
            continue
        called = Trial(exercise, check.case, worker.session.seed).call(worker, limit_s=LIMIT_S)
        if called is not None:
            yield name, called.outputs[0].flatten().tolist()


def _names(check: TodoCheck, text: str) -> list[str]:
    """Return the names that the TODO sets, in their order."""
    lines = lines_of_region(text.split("\n"), check.number)
    nodes = [node for node in ast.walk(parse(text)) if isinstance(node, ast.Assign | ast.AnnAssign)]
    inside = sorted((node for node in nodes if node.lineno in lines), key=lambda node: node.lineno)
    return list(dict.fromkeys(name for node in inside for name in bound_names(node)))[:MOST_NAMES]


def _shown(check: TodoCheck, text: str, name: str) -> str | None:
    """Return the text with what shows a name in place of the next placeholder of the kernel; None if none."""
    tree = parse(text)
    kernel = next(
        (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == check.kernel), None
    )
    if kernel is None:
        return None
    own = range(kernel.lineno, (kernel.end_lineno or kernel.lineno) + 1)
    open_ = [todo.line for todo in placeholders_in(text, tree) if todo.line in own]
    if not open_:
        return None
    lines = text.split("\n")
    at = min(open_) - 1
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    return "\n".join([*lines[:at], f"{indent}{check.shown.replace('NAME', name)}", *lines[at + 1 :]])


def _of_names(check: TodoCheck, numbers: Mapping[str, Sequence[float]]) -> str:
    """Say which names are what is expected, and of what is not how the nearest one differs."""
    if not numbers:
        return ""
    right, wrong = list[str](), list[str]()
    taken = set[str]()
    for what, wanted in check.expected.items():
        name = next((one for one, got in numbers.items() if list(got) == list(wanted)), "")
        if name:
            right.append(f"the {what} `{name}`")
            taken.add(name)
            continue
        kind = set(wanted) <= {0.0, 1.0}
        near = [one for one, got in numbers.items() if one not in taken and (set(got) <= {0.0, 1.0}) is kind]
        if not near:
            wrong.append(f"no name holds the {what}")
            continue
        got = numbers[near[-1]]  # what comes last is made of the others
        at = next(k for k in range(len(wanted)) if got[k] != wanted[k]) // check.lanes
        part = slice(at * check.lanes, (at + 1) * check.lanes)
        wrong.append(
            f"program {at}: the {what} `{near[-1]}` {'is' if kind else 'are'} {_row(got[part], kind)} and "
            f"should be {_row(wanted[part], kind)}"
        )
        taken.add(near[-1])
    if wrong:
        return "; ".join(wrong)
    return f"{' and '.join(right)} {'are' if len(right) > 1 else 'is'} right"


def _row(numbers: Sequence[float], kind: bool) -> str:
    """Return numbers as a table shows them; those of a mask, if it is of that `kind`, as T and F."""
    return " ".join(("F", "T")[int(one)] if kind else f"{one:g}" for one in numbers)


def _of_tiles(check: TodoCheck, numbers: Mapping[str, Sequence[float]]) -> str:
    """Say whether each tile has one number; which have none, and which several, if not."""
    got = numbers.get("")
    if got is None:
        return ""
    rows, cols = check.tiles
    every = [(row * check.side, col * check.side) for row in range(rows) for col in range(cols)]
    places = list(zip(got[0::2], got[1::2], strict=True))
    count = Counter(places)
    never = [one for one in every if not count[one]]
    often = [one for one in every if count[one] > 1]
    outside = next((number for number, one in enumerate(places) if one not in every), None)
    if not never:
        return f"each of the {len(every)} tiles has one number"
    said = [
        f"{'tile' if len(found) == 1 else 'tiles'} {_listed(found, check.side)} {words}"
        for found, words in (
            (never, "have no number" if len(never) > 1 else "has no number"),
            (often, "have several" if len(often) > 1 else "has several"),
        )
        if found
    ]
    if outside is not None:
        row, col = places[outside]
        said.append(f"number {outside} leads to row {row:g} and column {col:g}, where no tile begins")
    return "; ".join(said)


def _listed(tiles: Sequence[tuple[int, int]], side: int) -> str:
    named = ", ".join(f"({row // side}, {col // side})" for row, col in tiles[:MOST_TILES])
    return f"{named} and {len(tiles) - MOST_TILES} more" if len(tiles) > MOST_TILES else named

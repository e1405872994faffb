"""Find a mistake in the smallest calls that are wrong: where a file has two, one often shows alone there.

Cases of the usual sizes show every mistake of a file at once, and no single edit makes them right. In a call
of a few elements, and in those next to it, fewer mistakes matter, and an edit is tried within milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from grader.course.spec import Case, Exercise
from grader.judge.experiments.smallest import Smallest, smallest_wrong
from grader.judge.repair.bench import Bench
from grader.judge.repair.edit import Edit
from grader.judge.repair.search import Repair, Search, lay, parts_of
from grader.judge.repair.source import Source
from grader.judge.trial import MOST_ELEMENTS, elements
from grader.worker.submission_worker import SubmissionWorker

SHRINKING_S = 1.5  # for the smallest call; the rest of the time is for edits
MOST_WRONG, MOST_RIGHT = 12, 8  # small calls that an edit is judged by
MOST_LEFT = 4  # cases that are wrong with it still, in which it must not make anything worse


def by_small_calls(
    workers: Sequence[SubmissionWorker],
    text: str,
    exercise: Exercise,
    failing: Sequence[Case],
    passing: Sequence[Case],
    known: Repair | None,
    settled: Collection[str] = (),
    until: float = math.inf,
) -> tuple[Repair, Edit] | None:
    """Return the edits with which small calls are right, and the last one found, on top of those `known`.

    `failing` are cases that are wrong with the known edits. The repair has the names of all that are right
    with its edits: none if another mistake is in each of them. None if no edit is found. `settled` and
    `until` are as for a search.
    """
    lay(workers[0], text, known)
    asked = [one for one in failing if not (one.label or one.configs)]
    small = smallest_wrong(workers[0], exercise, asked, SHRINKING_S)
    if small is None:
        return None
    wrong, right = _nearest(small)
    if len(wrong) < 2:
        return None
    search = Search(workers, text, exercise, wrong, [*passing, *right], settled, until=until)
    edit = search.mend_first(parts_of(known))
    if edit is None:
        return None
    edits = (*(known.edits if known else ()), edit)
    bench = Bench(workers[0], exercise, failing, (), 0)
    before, after = (Source(text).with_replaced(parts_of(one)) for one in (known, Repair(edits)))
    mended = bench.mended_by(after, every=True)
    if bench.is_all(mended):
        return Repair(edits), edit
    left = [one for at, one in enumerate(failing) if at not in mended and elements(one) <= MOST_ELEMENTS]
    if left and not Bench(workers[0], exercise, left[:MOST_LEFT], (), 0).helps(before, after, ()):
        return None  # in calls of a few elements too many edits look right
    cases = known.cases if known and known.cases else frozenset[str]()
    return Repair(edits, cases | bench.names(mended)), edit


def _nearest(small: Smallest) -> tuple[list[Case], list[Case]]:
    """Return the smallest wrong calls that were tried, and the right ones next to them."""
    wrong = sorted((one for one in small.wrong if elements(one) <= MOST_ELEMENTS), key=elements)
    most = elements(wrong[0]) if wrong else 0
    right = sorted(small.right, key=lambda one: abs(elements(one) - most))
    return wrong[:MOST_WRONG], right[:MOST_RIGHT]

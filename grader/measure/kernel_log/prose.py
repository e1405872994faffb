"""Check the Markdown of a kernel log: blocks against records, and the numbers in the prose around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from grader.measure.kernel_log.markdown import LEARNED, PLACEHOLDER, blocks, compared, number_of, shown
from grader.measure.kernel_log.numbers import Known, learn, unknown
from grader.measure.kernel_log.store import MARKDOWN, Stored
from grader.report.markdown import Region
from grader.system.text import one_line


def problems(text: str, known: Mapping[int, Stored]) -> Iterator[str]:
    """Yield what is wrong in the text, with its line; `known` are the steps by number."""
    found, marks = blocks(text)
    yield from (f"{MARKDOWN} {problem}" for problem in marks)
    yield from _of_blocks(text, found, known)
    if not marks:
        yield from _of_prose(text, found, known)


def _of_blocks(text: str, found: list[Region], known: Mapping[int, Stored]) -> Iterator[str]:
    there = {number_of(one) for one in found}
    yield from (
        f"{MARKDOWN}: the block of step {number} is missing" for number in known if number not in there
    )
    for one in found:
        number = number_of(one)
        if number not in known:
            yield f"{MARKDOWN} line {one.line}: step {number} has no record"
            continue
        written, right = text[one.inside], shown(known[number], compared(known[number], known))
        if written == right:
            continue
        pairs = zip_longest(written.split("\n"), right.split("\n"), fillvalue="(nothing)")
        at, (mine, recorded) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        yield (
            f"{MARKDOWN} line {one.line + at}: step {number} is not what was recorded: "
            f"shown {one_line(mine)!r}, recorded {one_line(recorded)!r}"
        )


def _of_prose(text: str, found: list[Region], known: Mapping[int, Stored]) -> Iterator[str]:
    measured, foreseen, earlier = Known(), Known(), []
    starts = [*(one.whole.start for one in found[1:]), len(text)]
    for one, end in zip(found, starts, strict=False):
        number, after = number_of(one), one.whole.stop
        step = known.get(number)
        if step:
            learn(step.record, shown(step, compared(step, known)), earlier, measured, foreseen)
            earlier.append(step.record)
        prose, line = text[after:end], 1 + text.count("\n", 0, after)
        if not _own_words(prose):
            yield f'{MARKDOWN} line {line}: step {number} has no words under "{LEARNED.lstrip("# ")}"'
        yield from _unmeasured(prose, line, f"up to step {number}", measured, foreseen)
    if found:
        yield from _unmeasured(text[: found[0].whole.start], 1, "of the log", measured, foreseen)


def _unmeasured(prose: str, line: int, which: str, measured: Known, foreseen: Known) -> Iterator[str]:
    for at, words in enumerate(prose.split("\n")):
        for written in unknown(words, measured, foreseen):
            yield f"{MARKDOWN} line {line + at}: no step {which} measured {one_line(written)}"


def _own_words(prose: str) -> bool:
    _, heading, rest = prose.partition(f"\n{LEARNED}")
    lines = [line.strip() for line in rest.splitlines()]
    own = [line for line in lines if line and not line.startswith(("#", "<!--")) and line != PLACEHOLDER]
    return bool(heading) and any(re.search(r"\w", line) for line in own)

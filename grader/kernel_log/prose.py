"""Check the Markdown of a kernel log: blocks against records, and the numbers of the prose around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from grader.kernel_log.markdown import LEARNED, PLACEHOLDER, Block, block, blocks, compared
from grader.kernel_log.numbers import Known, learn, unknown
from grader.kernel_log.store import MARKDOWN, Stored
from grader.outcome import one_line


def problems(text: str, known: Mapping[int, Stored]) -> Iterator[str]:
    """What is wrong in the text, with its line; `known` are the steps by number."""
    found, marks = blocks(text)
    yield from (f"{MARKDOWN} {problem}" for problem in marks)
    yield from _of_blocks(text, found, known)
    if not marks:
        yield from _of_prose(text, found, known)


def _of_blocks(text: str, found: list[Block], known: Mapping[int, Stored]) -> Iterator[str]:
    there = {one.number for one in found}
    yield from (
        f"{MARKDOWN}: the block of step {number} is missing" for number in known if number not in there
    )
    for one in found:
        if one.number not in known:
            yield f"{MARKDOWN} line {one.line}: step {one.number} has no record"
            continue
        step, shown = known[one.number], text[one.start : one.end]
        right = block(step, compared(step, known))
        if shown == right:
            continue
        pairs = zip_longest(shown.split("\n"), right.split("\n"), fillvalue="(nothing)")
        at, (mine, recorded) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        yield (
            f"{MARKDOWN} line {one.line + at}: step {one.number} is not what was recorded: "
            f"shown {one_line(mine)!r}, recorded {one_line(recorded)!r}"
        )


def _of_prose(text: str, found: list[Block], known: Mapping[int, Stored]) -> Iterator[str]:
    measured, foreseen, earlier = Known(), Known(), []
    starts = [*(one.start for one in found[1:]), len(text)]
    for one, end in zip(found, starts, strict=False):
        step = known.get(one.number)
        if step:
            learn(step.record, block(step, compared(step, known)), earlier, measured, foreseen)
            earlier.append(step.record)
        prose, line = text[one.end : end], 1 + text.count("\n", 0, one.end)
        if not _own_words(prose):
            yield f'{MARKDOWN} line {line}: step {one.number} has no words under "{LEARNED.lstrip("# ")}"'
        yield from _unmeasured(prose, line, f"up to step {one.number}", measured, foreseen)
    if found:
        yield from _unmeasured(text[: found[0].start], 1, "of the log", measured, foreseen)


def _unmeasured(prose: str, line: int, which: str, measured: Known, foreseen: Known) -> Iterator[str]:
    for at, words in enumerate(prose.split("\n")):
        for written in unknown(words, measured, foreseen):
            yield f"{MARKDOWN} line {line + at}: no step {which} measured {one_line(written)}"


def _own_words(prose: str) -> bool:
    _, heading, rest = prose.partition(f"\n{LEARNED}")
    lines = [line.strip() for line in rest.splitlines()]
    own = [line for line in lines if line and not line.startswith(("#", "<!--")) and line != PLACEHOLDER]
    return bool(heading) and any(re.search(r"\w", line) for line in own)

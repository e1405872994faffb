"""The kernel log as Markdown: each step's block is rendered from its record, the text around it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from grader.measure.bench.record import size_text
from grader.measure.kernel_log.record import Record, Timing
from grader.measure.kernel_log.store import LogError, Stored
from grader.measure.kernel_log.tables import escape, table
from grader.report.markdown import Region, marked, page, regions, rewrite
from grader.system.text import one_line

HEAD = """# Kernel log

`make log STEP="what I expect, and why"` stores the prediction, measures the kernel, and adds an entry here.
Each block between marks is rendered from `kernel-log/`; what you write outside of the blocks is kept.
Write below each block what you learned; a number with a unit must come from this step or an earlier one.
`make check-log` finds steps that were changed or left out, and numbers and kernels that no step measured.
"""
LEARNED, PLACEHOLDER = "### What I learned", "_your words_"
LABEL = r"STEP \d{1,4}"


def entry(step: Stored, before: Stored | None) -> str:
    """Render the heading, the block, and the place for the student's words."""
    record = step.record
    heading = f"## {record.number}. {record.title}: {record.name}"
    block = marked(f"STEP {record.number}", shown(step, before), named_end=True)
    return f"\n{heading}\n\n{block}\n\n{LEARNED}\n\n{PLACEHOLDER}\n"


def shown(step: Stored, before: Stored | None) -> str:
    """Render the text between the marks of a step; `before` is the step that it is compared with."""
    record = step.record
    paragraphs = [
        "**Prediction**",
        "\n".join(_quoted(line) for line in record.prediction.splitlines()),
        f"**Changed**: {_changed(record)}",
        f"**Result**: {verdict(record, before and before.record)}",
        table(record, before and before.record),
        *_notes(record, before and before.record),
        f"{_where(record)}; record sha256 `{step.sha256[:16]}`.",
    ]
    return page(paragraphs)


def verdict(record: Record, before: Record | None) -> str:
    """State the result of a step, by the confidence interval of the paired rounds."""
    if record.status != "ok":
        return f"{record.status.upper()}: {escape(one_line(record.reason)) or 'no reason was given'}"
    if before is None:
        return f"the first step of {record.title}"
    if before.size != record.size:
        return f"no comparison: step {before.number} was measured at {size_text(before.size)}"
    timing: Timing = record.timing
    found = timing.against_previous
    if found is None:
        why = timing.previous and f": {timing.previous.status} {timing.previous.reason}"
        return f"no comparison: step {before.number} has no time beside this one{escape(one_line(why or ''))}"
    low, middle, high = (100 * (ratio - 1) for ratio in (found.low, found.ratio, found.high))
    if low > 0:
        return f"faster than step {before.number} by {middle:.1f} % ({low:.1f} % to {high:.1f} %)"
    if high < 0:
        return f"slower than step {before.number} by {-middle:.1f} % ({-high:.1f} % to {-low:.1f} %)"
    return f"no difference from step {before.number}: {middle:+.1f} % ({low:+.1f} % to {high:+.1f} %)"


def render(text: str, steps: Sequence[Stored]) -> str:
    """Return the text with every block rendered from its record, and a new entry for each step without one.

    Raises LogError if the marks are so wrong that blocks and prose cannot be told apart.
    """
    found, problems = blocks(text)
    if problems:
        raise LogError(f"KERNEL_LOG.md {problems[0]}: correct the marks; nothing was written")
    known = {step.record.number: step for step in steps}

    def again(one: Region) -> str:
        step = known.get(number_of(one))
        return shown(step, compared(step, known)) if step else text[one.inside]

    there = {number_of(one) for one in found}
    missing = [entry(step, compared(step, known)) for number, step in known.items() if number not in there]
    gap = "\n" if missing and text and not text.endswith("\n") else ""
    return "".join([rewrite(text, found, again), gap, *missing])


def compared(step: Stored, known: Mapping[int, Stored]) -> Stored | None:
    """Return the step that a step is compared with."""
    return known.get(step.record.compared_with)


def blocks(text: str) -> tuple[list[Region], list[str]]:
    """Return the region of every step in order, and what is wrong with the marks, each with its line."""
    found, problems = regions(text, LABEL, named_ends=True)
    seen = [number_of(one) for one in found]
    for i, (number, one) in enumerate(zip(seen, found, strict=True)):
        if number in seen[:i]:
            problems.append(f"line {one.line}: a second block of step {number}")
        elif i and number < seen[i - 1]:
            problems.append(f"line {one.line}: step {number} comes after step {seen[i - 1]}")
    return found, problems


def number_of(one: Region) -> int:
    """Return the number of the step in a region's mark."""
    return int(one.label.removeprefix("STEP "))


def _quoted(line: str) -> str:
    """A line of the prediction as a quote, in which it starts no list and underlines no heading."""
    return "> " + re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", escape(line))


def _changed(record: Record) -> str:
    headers = [f"`{name}`" for name in record.files if name != record.name]
    names = " and ".join([f"`{record.name}`", *headers])
    if not record.compared_with:
        return f"{names}, the first step"
    lines = f"{record.lines_added} lines added, {record.lines_removed} removed"
    return f"{names} against step {record.compared_with}: {lines}"


def _notes(record: Record, before: Record | None) -> Iterator[str]:
    if before is not None:
        moved = [
            f"{name} {escape(one_line(was))} to {escape(one_line(now))}"
            for (name, was), (_, now) in zip(_versions(before), _versions(record), strict=True)
            if was != now
        ]
        if moved:
            yield f"Not the same machine as in step {before.number}: {'; '.join(moved)}."
    if record.counters is None:
        yield f"No counters: {escape(one_line(record.counters_missing)) or 'not asked for'}."


def _versions(record: Record) -> list[tuple[str, str]]:
    gpu, machine = record.machine.gpu, record.machine
    return [
        *((key, getattr(gpu, name, "none")) for key, name in (("GPU", "name"), ("device", "uuid_hash"))),
        ("driver", getattr(gpu, "driver", "none")),
        *((key, getattr(machine, key)) for key in ("torch", "triton", "python", "platform")),
        ("CUDA", record.cuda or "none"),
    ]


def _where(record: Record) -> str:
    known = dict(_versions(record))
    shown = ("driver", "torch", "triton", "CUDA")
    versions = ", ".join(f"{name} {escape(one_line(known[name]))}" for name in shown)
    return f"{size_text(record.size)}; {escape(one_line(known['GPU']))}, {versions}; {record.date}"

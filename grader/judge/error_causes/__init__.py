"""The cause of an error, in plain words: from its type and message, its line, and the nearest right name.

What is found is shown and nothing else: no verdict and no point depends on it. Each module has one family
of errors. Messages of Triton, PyTorch, Python and nvcc are recognised by a few of their words, because they
are all that there is; where none of them is recognised, there is no cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from grader.course.hints import hint_of_todo, todo_hints
from grader.course.spec import Verdict
from grader.judge.error_causes import (
    arguments,
    autograd,
    axes,
    blocks,
    cuda,
    host,
    launches,
    names,
    order,
    policy,
    roles,
    shapes,
    syntax,
)
from grader.judge.error_causes.failed import Failed
from grader.results.findings import Frame
from grader.results.outcome import Outcome

ERRORS = (
    Verdict.CRASHED,
    Verdict.COMPILE_ERROR,
    Verdict.POLICY,
    Verdict.TIMEOUT,
    Verdict.OUT_OF_MEMORY,
)
PYTHON_RULES = (
    *syntax.RULES,
    *policy.RULES,
    *order.RULES,
    *roles.RULES,
    *arguments.RULES,
    *launches.RULES,
    *blocks.RULES,
    *axes.RULES,
    *shapes.RULES,
    *autograd.RULES,
    *host.RULES,
    *names.RULES,
)
_TASK = re.compile(r"\s*(?:#|//) *(?P<mark>BEGIN|END) TODO (?P<number>\d+)\b")
NATIVE_RULES = (*cuda.RULES, names.no_such_function)


# Errors that a hint of the lab helps with: of the task in which the line is. The others are slips.
HINTED = frozenset(
    (
        launches.grid,
        launches.no_pointer,
        launches.order,
        arguments.missing,
        blocks.constant,
        blocks.arange,
        blocks.pointer,
        blocks.types,
        shapes.shapes,
        shapes.dot,
        autograd.autograd,
        autograd.saved,
        host.division,
    )
)


class FileFacts(NamedTuple):
    """What is known of the file beside the error. `given` are texts of modules that it imports, by name."""

    text: str
    file: str = ""
    readme: str = ""  # the text of the lab's README
    tier: str = ""
    native: bool = False
    given: Mapping[str, str] = MappingProxyType({})


def with_cause(outcome: Outcome, facts: FileFacts) -> Outcome:
    """Return the outcome of an error with cause and hint, in the innermost error's words, with its line.

    Triton's compiler quotes the kernel instead of naming the line, and its interpreter puts errors into each
    other. An outcome of another kind is returned as it is.
    """
    if outcome.verdict not in ERRORS or outcome.blocked:
        return outcome
    failed = Failed.of(outcome, facts.text, facts.tier, facts.native, facts.given)
    frames = outcome.frames
    if failed.line and (not frames or frames[0].line != failed.line):
        name = failed.function.name if failed.function else ""
        frames = (Frame(line=failed.line, function=name, code=failed.code), *frames)
    where = f"{failed.kind}: {failed.text}".removesuffix(": ") if failed.unwrapped else outcome.where
    for rule in NATIVE_RULES if facts.native else PYTHON_RULES:
        cause = rule(failed)
        if cause:
            lines = [failed.line, *(one.line for one in failed.frames if not one.other_file)]
            if rule is autograd.saved:  # what is wrong is not where the tuple was used
                lines.reverse()
            hint = _hint(failed, facts, lines) if rule in HINTED else None
            return replace(outcome, where=where, frames=frames, cause=cause, hint=hint or outcome.hint)
    return replace(outcome, where=where, frames=frames)


def _hint(failed: Failed, facts: FileFacts, lines: Sequence[int]) -> int | None:
    """The number of the hint for the task whose marks are around the first line that has any, or None."""
    hints = todo_hints(facts.readme)
    for line in dict.fromkeys(lines):
        above = [_TASK.match(one) for one in failed.source.lines[: max(line, 0)]]
        last = next((one for one in reversed(above) if one), None)
        if last and last["mark"] == "BEGIN":
            return hint_of_todo(hints, facts.file, int(last["number"]))
    return None

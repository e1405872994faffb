"""The cause of an error, in plain words: from its type and message, its line, and the nearest right name.

What is found is shown and nothing else: no verdict and no point depends on it. Each module has one family
of errors. Messages of Triton, PyTorch, Python and nvcc are recognised by a few of their words, because they
are all that there is; where none of them is recognised, there is no cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grader.course.spec import Case, Verdict
from grader.judge.error_causes import (
    arguments,
    autograd,
    blocks,
    cuda,
    host,
    launches,
    names,
    policy,
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
    *arguments.RULES,
    *launches.RULES,
    *blocks.RULES,
    *shapes.RULES,
    *autograd.RULES,
    *host.RULES,
    *names.RULES,
)
NATIVE_RULES = (*cuda.RULES, names.no_such_function)


def cause_of(failed: Failed) -> str | None:
    """Return the cause of an error in one or two short sentences; None where no rule knows it."""
    rules = NATIVE_RULES if failed.native else PYTHON_RULES
    return next((words for rule in rules if (words := rule(failed))), None)


def with_cause(
    outcome: Outcome,
    text: str,
    case: Case | None = None,
    tier: str = "",
    native: bool = False,
    given: Mapping[str, str] | None = None,
) -> Outcome:
    """Return the outcome of an error with its cause, in the innermost error's words and with its line.

    Triton's compiler quotes the kernel instead of naming the line, and its interpreter puts errors into each
    other. `text` is the file, and `given` are texts of the modules that it may import, by name. An outcome of
    another kind is returned as it is.
    """
    if outcome.verdict not in ERRORS or outcome.blocked:
        return outcome
    failed = Failed.of(outcome, text, case, tier, native, given)
    frames = outcome.frames
    if failed.line and (not frames or frames[0].line != failed.line):
        name = failed.function.name if failed.function else ""
        frames = (Frame(line=failed.line, function=name, code=failed.code), *frames)
    where = f"{failed.kind}: {failed.text}".removesuffix(": ") if failed.unwrapped else outcome.where
    return replace(outcome, where=where, frames=frames, cause=cause_of(failed) or outcome.cause)

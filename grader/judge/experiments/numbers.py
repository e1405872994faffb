"""Say that a wrong result is right for another number than the one that was passed, such as another eps.

The reference is computed with the numbers of other cases, and with those that such a parameter usually has.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.inputs import numbers
from grader.judge.trial import MOST_ELEMENTS, Called, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

USUAL = (1e-5, 1e-6, 0.0, 1e-12, 1e-8, 1.0, 0.5)
RARE = 1e-3  # a number below it that stands in a file is no factor, and no start of a sum
MOST_CASES = 8  # that are called
THIRD = 64.0  # no number that is usual


def other_number(
    worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case], text: str
) -> dict[str, str]:
    """Return a cause by the name of each wrong case whose result is right for another number.

    `failing` are wrong cases that run in the interpreter, and `text` is the file. Empty where outputs follow
    from a random choice.
    """
    found: dict[str, str] = {}
    if exercise.follow is not None:
        return found
    asked = [one for one in failing if elements(one) <= MOST_ELEMENTS]
    asked.sort(key=lambda one: not any(name in one.params for name in exercise.numbers))
    fitting: dict[str, tuple[Trial, list[int], list[Other]]] = {}
    for case in asked[:MOST_CASES]:
        trial = Trial(exercise, case, worker.session.seed)
        called = None if not numbers(trial.values) or worker.start() else trial.call(worker)
        wrong = _wrong(trial, called) if called else []
        fits = [one for one in _others(trial) if _fits(trial, called, wrong, one)] if called and wrong else []
        if not fits:
            break
        fitting[case.name] = trial, wrong, fits
    # Of large numbers several may fit a case: the one that is used there fits the other cases as well.
    often = Counter((one.name, one.other) for _, _, fits in fitting.values() for one in fits)
    for name, (trial, wrong, fits) in fitting.items():
        one = max(fits, key=lambda one: often[one.name, one.other])
        if not _is_unused(worker, trial, one.name, one.other, wrong):
            break
        found[name] = _said(trial, wrong, one, text)
    return found


class Other(NamedTuple):
    """A number of a call: its name, the value that was passed, and another one."""

    name: str
    value: float
    other: float


def _wrong(trial: Trial, called: Called) -> list[int]:
    return [at for at, is_right in enumerate(trial.right_outputs(called)) if not is_right]


def _fits(trial: Trial, called: Called, wrong: Sequence[int], one: Other) -> bool:
    """Return whether the wrong outputs are those of another number, and not of the one that was passed."""
    changed = comparison.expect(trial.exercise, trial.case, {**trial.values, one.name: one.other})
    outputs = [value.to(got.dtype) for value, got in zip(changed.reference, called.outputs, strict=True)]
    for at in wrong:
        outputs[at] = called.outputs[at]
    finding, _ = comparison.examine(trial.exercise, trial.case, changed, outputs)
    return finding is None and _differ(trial, changed, wrong)  # numbers with the same result say nothing


def _said(trial: Trial, wrong: Sequence[int], one: Other, text: str) -> str:
    which = " and ".join(f"`{trial.exercise.outputs[at]}`" for at in wrong)
    return (
        f"with {one.name}={one.value:g} the values in {which} are those of {one.name}={one.other:g}: the "
        f"`{one.name}` that was passed is not what is used there{_place(text, one.other)}"
    )


def _is_unused(worker: SubmissionWorker, trial: Trial, name: str, other: float, wrong: Sequence[int]) -> bool:
    """Return whether the `other` number decides as well where a third one is passed.

    If not, what is passed is used, in another way. A case that does not name the number cannot show it.
    """
    if name not in trial.case.params:
        return True
    third = Trial(
        trial.exercise,
        replace(trial.case, params={**trial.case.params, name: THIRD}),
        worker.session.seed,
    )
    called = third.call(worker)
    if called is None:
        return False
    changed = comparison.expect(third.exercise, third.case, {**third.values, name: other})
    outputs = [one.to(got.dtype) for one, got in zip(changed.reference, called.outputs, strict=True)]
    for at in wrong:
        outputs[at] = called.outputs[at]
    return comparison.examine(third.exercise, third.case, changed, outputs)[0] is None


def _place(text: str, number: float) -> str:
    """Say which line has a number that few lines have; "" if none has it, or several do."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    lines = {node.lineno for node in nodes if type(node.value) is float and node.value == number}
    return f"; line {lines.pop()} has {number:g}" if len(lines) == 1 and 0.0 < number < RARE else ""


def _others(trial: Trial) -> Iterator[Other]:
    """Give each number with other values that it may have."""
    for name, value in numbers(trial.values).items():
        usual = inspect.signature(trial.exercise.reference).parameters[name].default
        listed = [case.params.get(name) for case in trial.exercise.cases]
        known = [float(one) for one in (usual, *USUAL, *listed) if isinstance(one, int | float)]
        for other in dict.fromkeys(known):
            if other != value and isinstance(value, float):
                yield Other(name, value, other)


def _differ(trial: Trial, changed: comparison.Expected, wrong: Sequence[int]) -> bool:
    """Return whether the reference of another number is wrong for the number that was passed."""
    like = comparison.rounded(trial.exercise, trial.case, trial.values)
    other = [one.to(two.dtype) for one, two in zip(changed.reference, like, strict=True)]
    outputs = [other[at] if at in wrong else own for at, own in enumerate(like)]
    finding, _ = comparison.examine(trial.exercise, trial.case, trial.expected, outputs)
    return finding is not None

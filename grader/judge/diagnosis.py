"""From what is wrong to the likely cause: which elements, which symptom, which hint helps.

The judge uses the public functions; how a symptom is found is this module's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from grader.course.signatures import Inputs, Tensors
from grader.course.spec import Case, Exercise, Lab, Reason, Verdict
from grader.course.symptoms import AnySymptom, Symptom, checked_symptom
from grader.judge.comparison import Finding
from grader.results.outcome import Outcome

GENERAL: dict[AnySymptom, str] = {  # causes where a lab has none of its own
    Symptom.NOTHING_WRITTEN: "the result never reaches `out`",
    Symptom.OUT_OF_BOUNDS_WRITE: "a store has no mask, or a mask that lets too many lanes through",
    Symptom.OUT_OF_BOUNDS_READ: "a load has no mask, or a mask that lets too many lanes through",
    Symptom.MUTATED: "an input was written to; the result belongs in `out`",
    Symptom.NONDETERMINISTIC: "two runs on the same inputs differ: two programs write the same element",
    Symptom.OTHER_CONFIG: (
        "another config of the autotuner makes another choice: what an element gets must not depend on the "
        "size of a block"
    ),
    Symptom.OTHER_DTYPE: "another dtype makes another choice: what is random must not depend on the dtype",
    Symptom.RACE: "two programs access one element, and at least one of them stores it",
    Symptom.ALL_ZERO: "every element is 0: does the kernel run, and store?",
    Symptom.STALE: "these are the results of an earlier call: compute on every call",
    Symptom.FIRST_CALL: (
        "only the first call with these sizes is wrong: an autotuned kernel runs several times in it, and a "
        "run must not build on what an earlier one has left in memory"
    ),
    Symptom.SHARED_MEMORY: "more shared memory than a block may use: take a smaller block or fewer stages",
    Symptom.FOREIGN_KERNEL: "the work is to be done in a @triton.jit function of this file",
    Symptom.HOST_READ: "host code must not read a tensor's values: on a GPU it would wait for every kernel",
    Symptom.HOST_WAIT: "host code must not wait for the GPU: a call only puts work into its queue",
    Symptom.RETURNS_NOTHING: "the function does not return its result: a `return` is missing",
    Symptom.RETURNS_ANOTHER: "the function returns the tensors that it wrote, those it was given or new ones",
    Symptom.RETURNED_ORDER: "the results are returned in another order than the README's",
    Symptom.RETURNS_A_COPY: "nothing is to be computed in this case: return the argument itself",
    Symptom.RETURNED_KIND: "what is allocated where no `out` is passed has another shape, dtype or layout",
    Symptom.OFFSETS_WRAP: (
        "right where rows lie close together: beyond 2^31 elements the offsets wrap around in int32, so a "
        "row number becomes int64 before it is multiplied by a stride"
    ),
    Symptom.DY_LAYOUT: (
        "right for a contiguous dy, and autograd may hand over one that is expanded or transposed"
    ),
    Symptom.SCALED: "the values differ by one constant factor",
    Symptom.PRECISION: "right but for the last digits: compute in fp32, and round once, at the store",
    Symptom.UNMASKED_READ: (
        "NaN from behind a row: a load has no mask, or a mask that lets too many lanes through"
    ),
    Symptom.NO_MASK: "a load has no mask",
    Symptom.PADDED_WRITE: "a write between or behind padded rows: each tensor has a row stride of its own",
    Symptom.POWER_OF_TWO: "the length of a tl.arange must be a power of two: take the next one, and a mask",
    Symptom.DIVISION_BY_ZERO: "a size of 0 is valid here: launch nothing then, and divide by no size",
    Symptom.FLAT_VIEW: (
        "`view` joins axes only where they lie one behind the other in memory, and those of padded rows or "
        "swapped axes do not: pass the strides of each axis to the kernel"
    ),
    Symptom.NO_GRADIENT_FUNCTION: "autograd saw no function with a backward: call it through `apply`",
}
FALLBACK: dict[AnySymptom, Symptom] = {  # symptoms that a lab need not tell apart
    Symptom.ROWS_UNWRITTEN: Symptom.TAIL_UNWRITTEN,
    Symptom.NO_MASK: Symptom.UNMASKED_READ,
    Symptom.UNMASKED_READ: Symptom.OUT_OF_BOUNDS_READ,
    Symptom.PADDED_WRITE: Symptom.OUT_OF_BOUNDS_WRITE,
    Symptom.RACE: Symptom.NONDETERMINISTIC,
}
FAILURES: dict[str, Symptom] = {  # words of an error to the symptom that it is
    "arange's range must be a power of 2": Symptom.POWER_OF_TWO,
    "ZeroDivisionError": Symptom.DIVISION_BY_ZERO,
    "view size is not compatible": Symptom.FLAT_VIEW,
    "without a gradient function": Symptom.NO_GRADIENT_FUNCTION,
    "does not require grad": Symptom.NO_GRADIENT_FUNCTION,
    "out of resource": Symptom.SHARED_MEMORY,
}


@dataclass(frozen=True)
class Diagnosis:
    """A symptom, in words which elements show it, its likely cause, and the hint of the lab's README."""

    symptom: AnySymptom
    pattern: str
    cause: str
    hint: int | None


def cause_of(lab: Lab, symptom: AnySymptom, finding: Finding | None = None) -> Diagnosis:
    """The lab's own cause for a symptom, the general one, or the lab's advice for anything wrong.

    `finding` says which elements show the symptom; without it the diagnosis has no pattern.
    """
    known = symptom
    while known not in lab.causes and known in FALLBACK:
        known = FALLBACK[known]
    hint, cause = lab.causes.get(known, (None, GENERAL.get(symptom, "")))
    if not cause and symptom not in GENERAL:
        hint, cause = lab.causes.get(Symptom.WRONG, (None, ""))
    return Diagnosis(symptom, _pattern_of(finding) if finding else "", cause, hint)


def diagnosed(
    lab: Lab,
    verdict: Verdict,
    reason: Reason,
    symptom: AnySymptom,
    where: str,
    finding: Finding | None = None,
) -> Outcome:
    """Return an outcome with the cause and the hint of a symptom, which `finding` shows, if any."""
    found = cause_of(lab, symptom, finding)
    return Outcome(
        verdict,
        reason,
        where=where,
        pattern=found.pattern,
        cause=found.cause,
        symptom=symptom,
        hint=found.hint,
    )


def symptom_of_error(text: str) -> Symptom | None:
    """The symptom that the text of an error names, None where it speaks for itself."""
    return next((symptom for words, symptom in FAILURES.items() if words in text), None)


def diagnose(
    lab: Lab,
    exercise: Exercise,
    case: Case,
    finding: Finding,
    inputs: Inputs,
    expected: torch.Tensor,
    got: torch.Tensor,
    earlier: Tensors,
) -> Diagnosis:
    """What a wrong output looks like, and its likely cause.

    `expected` in fp64 and `got` in the case's dtype are the finding's output; `earlier` are results of other
    calls that a cache might have kept, of any shape. ValueError where the exercise's own function gives
    something that is no symptom.
    """
    return cause_of(lab, _symptom(exercise, case, finding, inputs, expected, got, earlier), finding)


def _pattern_of(finding: Finding) -> str:
    """How many elements are wrong, and where they lie."""
    where, _ = describe_region(finding.bad)
    return f"{finding.wrong:,} of {finding.bad.numel():,} {_verb(finding.reason)}, {where}"


def _verb(reason: Reason) -> str:
    verbs = {
        Reason.UNWRITTEN: "never written",
        Reason.NONFINITE: "NaN or inf",
        Reason.PRECISION: "too far off",
    }
    return verbs.get(reason, "wrong")


def _symptom(
    exercise: Exercise,
    case: Case,
    finding: Finding,
    inputs: Inputs,
    expected: torch.Tensor,
    got: torch.Tensor,
    earlier: Tensors,
) -> AnySymptom:
    if finding.symptom:
        return finding.symptom
    _, region = describe_region(finding.bad)
    if finding.reason is Reason.UNWRITTEN:
        if finding.bad.all():
            return Symptom.NOTHING_WRITTEN
        if region in ("last rows", "rows after the first"):
            return Symptom.ROWS_UNWRITTEN
        # Of a vector, no more than the last block: where most is missing, programs share a place.
        tail = region == "last columns" or (region == "end" and 2 * finding.wrong < finding.bad.numel())
        return Symptom.TAIL_UNWRITTEN if tail else Symptom.PART_UNWRITTEN
    values = got.double()
    if finding.reason is Reason.NONFINITE:
        return _own_symptom(exercise, case, inputs, expected, values) or Symptom.NOT_FINITE
    if any(old.shape == values.shape and torch.equal(values, old.double()) for old in earlier):
        return Symptom.STALE
    own = _own_symptom(exercise, case, inputs, expected, values)
    if own:
        return own
    if not values.any():
        return Symptom.ALL_ZERO
    if finding.reason is Reason.PRECISION:
        return Symptom.PRECISION
    if exercise.differentiable and finding.output != "y":
        return Symptom.GRADIENT
    if region in ("last columns", "end") and finding.bad.any(dim=-1).all():
        width = finding.bad.shape[-1] - int(finding.bad.nonzero()[:, -1].min())
        return Symptom.TAIL_WRONG if 2 * width < finding.bad.shape[-1] else Symptom.LATER_BLOCKS_WRONG
    by_region = {
        "first columns": Symptom.FIRST_BLOCKS_WRONG,
        "rows after the first": Symptom.LATER_ROWS_WRONG,
        "last columns": Symptom.LAST_COLUMNS_WRONG,
        "last rows": Symptom.LAST_ROWS_WRONG,
    }
    if region in by_region:
        return by_region[region]
    ratio = values / expected
    kept = ratio[expected.abs() > 1e-3 * expected.abs().max()]
    if kept.numel() > 8 and kept.std() < 1e-3 * kept.mean().abs():
        return Symptom.SCALED
    return Symptom.WRONG


def _own_symptom(
    exercise: Exercise, case: Case, inputs: Inputs, expected: torch.Tensor, values: torch.Tensor
) -> AnySymptom | None:
    """What only this exercise recognises, None where it has no such function or that sees none."""
    if exercise.symptom_of is None:
        return None
    found = exercise.symptom_of(case, inputs, expected, values)
    return None if found is None else checked_symptom(found, exercise.name)


def describe_region(bad: torch.Tensor) -> tuple[str, str]:
    """Where the True elements lie: in words with their range, and as the name of a region ("" where it has
    none).
    """
    if bad.all():
        return "every element", "all"
    if bad.dim() == 1:
        bad = bad[None]
        rows_word = ""
    else:
        bad = bad.reshape(-1, bad.shape[-1])
        rows_word = "row"
    rows = bad.any(dim=1).nonzero().flatten()
    columns = bad.any(dim=0).nonzero().flatten()
    top, bottom, left, right = int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
    height, width = bad.shape
    all_rows, all_columns = rows.numel() == height, columns.numel() == width
    if not rows_word:
        where = f"elements {left} to {right}" if right > left else f"element {left}"
        region = "end" if right == width - 1 and left else "start" if left == 0 else ""
        return (f"{where}, up to the end" if region == "end" else where), region
    across = (
        "all columns" if all_columns else f"columns {left} to {right}" if right > left else f"column {left}"
    )
    down = "every row" if all_rows else f"rows {top} to {bottom}" if bottom > top else f"row {top}"
    if all_columns and top == 1 and bottom == height - 1 and rows.numel() == height - 1:
        return "in every row after the first", "rows after the first"
    if all_columns and bottom == height - 1 and top:
        return f"in {down}, down to the last", "last rows"
    if right == width - 1 and left:
        return f"in {across}, up to the last, in {down}", "last columns"
    if left == 0 and right < width - 1:
        return f"in {across}, in {down}", "first columns"
    return f"in {across}, in {down}", ""

"""From what is wrong to the likely cause: which elements, which sign they show, which hint helps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from grader.compare import Finding
from grader.spec import Case, Exercise, Lab

GENERAL = {  # causes where a lab has none of its own
    "nothing written": "the result never reaches `out`",
    "out of bounds write": "a store has no mask, or a mask that lets too many lanes through",
    "out of bounds read": "a load has no mask, or a mask that lets too many lanes through",
    "mutated": "an input was written to; the result belongs in `out`",
    "nondeterministic": "two runs on the same inputs differ: two programs write the same element",
    "all zero": "every element is 0: does the kernel run, and store?",
    "stale": "these are the results of an earlier call: compute on every call",
    "shared memory": "more shared memory than a block may use: take a smaller block or fewer stages",
    "foreign kernel": "the work is to be done in a @triton.jit function of this file",
    "scaled": "the values differ by one constant factor",
    "precision": "right but for the last digits: compute in fp32, and round once, at the store",
    "unmasked read": "NaN from behind a row: a load has no mask, or a mask that lets too many lanes through",
    "padded write": "a write between or behind padded rows: each tensor has a row stride of its own",
    "power of two": "the length of a tl.arange must be a power of two: take the next one, and a mask",
    "division by zero": "a size of 0 is valid here: launch nothing then, and divide by no size",
    "flat view": "a padded matrix has no flat view: pass its row stride to the kernel",
    "no gradient function": "autograd saw no function with a backward: call it through `apply`",
}
FALLBACK = {  # signs that a lab need not tell apart
    "rows unwritten": "tail unwritten",
    "unmasked read": "out of bounds read",
    "padded write": "out of bounds write",
}
FAILURES = {  # words of an error to the sign that it shows
    "arange's range must be a power of 2": "power of two",
    "ZeroDivisionError": "division by zero",
    "view size is not compatible": "flat view",
    "without a gradient function": "no gradient function",
    "does not require grad": "no gradient function",
    "out of resource": "shared memory",
}


@dataclass(frozen=True)
class Diagnosis:
    """A sign, in words which elements show it, its likely cause, and the hint of the lab's README to read."""

    sign: str
    pattern: str
    cause: str
    hint: int | None


def cause_of(lab: Lab, sign: str, pattern: str = "") -> Diagnosis:
    """The lab's own cause for a sign, the general one, or the lab's advice for anything wrong."""
    known = sign if sign in lab.causes else FALLBACK.get(sign, sign)
    hint, cause = lab.causes.get(known, (None, GENERAL.get(sign, "")))
    if not cause and sign not in GENERAL:
        hint, cause = lab.causes.get("wrong", (None, ""))
    return Diagnosis(sign, pattern, cause, hint)


def sign_of_failure(text: str) -> str | None:
    """The sign that the text of an error shows, None where it speaks for itself."""
    return next((sign for words, sign in FAILURES.items() if words in text), None)


def diagnose(
    lab: Lab, exercise: Exercise, case: Case, finding: Finding, inputs, expected, got, earlier
) -> Diagnosis:
    """What a wrong output looks like. `expected` fp64 and `got` belong to the finding's output; `earlier` are
    results of other calls that a cache might have kept.
    """
    _, region = describe_region(finding.bad)
    sign = _sign(exercise, case, finding, region, inputs, expected, got, earlier)
    return cause_of(lab, sign, pattern_of(finding))


def pattern_of(finding: Finding) -> str:
    """How many elements are wrong, and where they lie."""
    where, _ = describe_region(finding.bad)
    return f"{finding.wrong:,} of {finding.bad.numel():,} {_verb(finding.reason)}, {where}"


def _verb(reason: str) -> str:
    return {"UNWRITTEN": "never written", "NONFINITE": "NaN or inf", "PRECISION": "too far off"}.get(
        reason, "wrong"
    )


def _sign(exercise, case, finding, region, inputs, expected, got, earlier) -> str:
    if finding.sign:
        return finding.sign
    if finding.reason == "UNWRITTEN":
        if finding.bad.all():
            return "nothing written"
        if region in ("last rows", "rows after the first"):
            return "rows unwritten"
        # Of a vector, no more than the last block: where most is missing, programs share a place.
        tail = region == "last columns" or (region == "end" and 2 * finding.wrong < finding.bad.numel())
        return "tail unwritten" if tail else "part unwritten"
    values = got.double()
    if finding.reason == "NONFINITE":
        own = exercise.signs(case, inputs, expected, values) if exercise.signs else None
        return own or "not finite"
    if any(old.shape == values.shape and torch.equal(values, old.double()) for old in earlier):
        return "stale"
    own = exercise.signs(case, inputs, expected, values) if exercise.signs else None
    if own:
        return own
    if not values.any():
        return "all zero"
    if finding.reason == "PRECISION":
        return "precision"
    if exercise.differentiable and finding.output != "y":
        return "gradient"
    if region in ("last columns", "end") and finding.bad.any(dim=-1).all():
        width = finding.bad.shape[-1] - int(finding.bad.nonzero()[:, -1].min())
        return "tail wrong" if 2 * width < finding.bad.shape[-1] else "later blocks wrong"
    by_region = {
        "first columns": "first blocks wrong",
        "rows after the first": "later rows wrong",
        "last columns": "last columns wrong",
        "last rows": "last rows wrong",
    }
    if region in by_region:
        return by_region[region]
    ratio = values / expected
    kept = ratio[expected.abs() > 1e-3 * expected.abs().max()]
    if kept.numel() > 8 and kept.std() < 1e-3 * kept.mean().abs():
        return "scaled"
    return "wrong"


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

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
    hint, cause = lab.causes.get(sign, (None, GENERAL.get(sign, "")))
    if not cause and sign not in GENERAL:
        hint, cause = lab.causes.get("wrong", (None, ""))
    return Diagnosis(sign, pattern, cause, hint)


def diagnose(
    lab: Lab, exercise: Exercise, case: Case, finding: Finding, inputs, expected, got, earlier
) -> Diagnosis:
    """What a wrong output looks like. `expected` fp64 and `got` belong to the finding's output; `earlier` are
    results of other calls that a cache might have kept.
    """
    where, region = describe_region(finding.bad)
    pattern = f"{finding.wrong:,} of {finding.bad.numel():,} {_verb(finding.reason)}, {where}"
    return cause_of(lab, _sign(exercise, case, finding, region, inputs, expected, got, earlier), pattern)


def _verb(reason: str) -> str:
    return {"UNWRITTEN": "never written", "NONFINITE": "NaN or inf", "PRECISION": "too far off"}.get(
        reason, "wrong"
    )


def _sign(exercise, case, finding, region, inputs, expected, got, earlier) -> str:
    if finding.reason == "UNWRITTEN":
        if finding.bad.all():
            return "nothing written"
        return "tail unwritten" if region in ("last columns", "last rows", "end") else "part unwritten"
    if finding.reason == "NONFINITE":
        return "not finite"
    values = got.double()
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

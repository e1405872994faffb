"""Correctness of one case: lend inputs, have the student's function run, and decide from the judge's own
memory.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from grader import compare, diagnose
from grader.error_map import map_of
from grader.inputs import (
    Loan,
    Placer,
    Rng,
    band_input,
    draw,
    first_change_outside,
    numbers,
    output_shapes,
    poison_output,
    same_bits,
    shapes_in,
    untouched,
)
from grader.lending import Arena
from grader.outcome import Outcome
from grader.seat import Seat
from grader.session import Session
from grader.spec import PLAIN, Case, Exercise, Lab, Verdict

# Judge and worker take turns: threads of one that spin while the other is at work cost more than they give.
torch.set_num_threads(1)


def lay_out(exercise: Exercise, case: Case, placer: Placer, shapes) -> tuple[list[Loan], list[Loan]]:
    """Loans for the inputs and outputs of one call, in the order of the call."""
    inputs = [
        placer.place(name, shape, case.dtype, case.layouts.get(name, PLAIN))
        for name, shape in shapes.items()
        if isinstance(shape, tuple)
    ]
    results = output_shapes(exercise, shapes)
    outputs = [
        placer.place(name, shape, case.dtype, case.layouts.get(name, PLAIN))
        for name, shape in results.items()
    ]
    return inputs, outputs


def grade_case(seat: Seat, lab: Lab, exercise: Exercise, case: Case, count_kernels: bool = False) -> Outcome:
    """Run one case three times and judge what lies in the lent memory after each.

    Twice on the same fresh inputs, which must give the same bits, then on others, which an answer kept from
    before does not fit. Then a look at whose work it was; with `count_kernels`, at what the GPU ran, too.
    """
    session, arena = seat.session, seat.arena
    draws = [draw(exercise, case, session.seed, session.device, call) for call in range(2)]
    inputs, outputs = lay_out(exercise, case, Placer(), shapes_in(draws[0]))
    rng = Rng(session.seed, f"poison/{exercise.name}/{case.name}", session.device)
    for loan in inputs:
        band_input(arena, loan)
    failed = seat.start()
    if failed:
        return failed
    expected = [compare.expect(exercise, case, drawn) for drawn in draws]
    broken = compare.invalid(expected)
    if broken:  # the grader's fault, and no student's loss
        return Outcome(Verdict.GRADER_FAULT, "INVALID_REFERENCE", where=broken)
    accepted = compare.accepted_nulls(exercise, case, expected[0], draws[0], expected[1])
    if accepted:
        where = f"this case would accept {accepted[0]} as an answer"
        return Outcome(Verdict.GRADER_FAULT, "INVALID_CASE", where=where)
    results, used = [], 0.0
    for call in (0, 0, 1):
        values = draws[call]
        for loan in inputs:
            arena.view(loan.tensor).copy_(values[loan.name])
        failed, got, masks = _call(seat, lab, exercise, case, inputs, outputs, rng, values)
        if failed:
            return _with_cause(lab, failed)
        earlier = results[0] if call else None
        finding, share = compare.examine(exercise, case, expected[call], got, masks, earlier)
        if finding and call == 0 and results:
            finding = None  # the first run of the same inputs was right: what differs now is said below
        if finding:
            if finding.reason == "NONFINITE" and finding.got != finding.got:
                zeros = _zeros_around(seat, lab, exercise, case, inputs, outputs, rng, values)
                k = exercise.outputs.index(finding.output)
                if zeros is not None and not zeros[k][finding.index].isnan():
                    return _read(lab, case, finding)
            return _wrong(lab, exercise, case, finding, values, expected[call], got, results)
        if call == 0 and results and not all(map(same_bits, results[0], got)):
            where = "two runs on the same inputs differ"
            said = _said(lab, Verdict.WRONG, "NONDETERMINISTIC", "nondeterministic", where)
            return replace(said, error_map=map_of(compare.difference(exercise, results[0], got)))
        results.append(got)
        used = max(used, share)
    foreign = _foreign_work(seat, lab, exercise, case, inputs, outputs, rng, count_kernels)
    return foreign or Outcome(Verdict.PASS, share=1.0, used=used)


def _foreign_work(seat, lab, exercise, case, inputs, outputs, rng, count_kernels) -> Outcome | None:
    """POLICY where a result comes about although every Triton kernel does nothing, torch computes a part of
    it, or the GPU runs a kernel that the file did not launch.

    On inputs that no call has seen: what is left in reused memory is then no result.
    """
    arena, values = seat.arena, draw(exercise, case, seat.session.seed, seat.session.device, 2)
    for loan in inputs:
        arena.view(loan.tensor).copy_(values[loan.name])
    before = [poison_output(arena, loan, rng) for loan in outputs]
    finish(seat.session)
    plan = seat.prepare(exercise, [(inputs, outputs)], case.limit_s, named=numbers(values))
    if exercise.native and not isinstance(plan, Outcome):  # native code calls no torch and no Triton
        seen = {"operators": [], "foreign": []}
    else:
        seen = plan if isinstance(plan, Outcome) else seat.watch(plan, case.limit_s)
    ends = (Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.RESOURCE_LIMIT)
    if isinstance(seen, Outcome):
        # Without its kernels a function may trip over its own intermediate results; only what ends the
        # worker counts.
        return seen if seen.verdict in ends else None
    blank = exercise.native or all(
        _blank(arena, loan, was, exercise) for loan, was in zip(outputs, before, strict=True)
    )
    computed = _forbidden(exercise, seen["operators"])
    if computed:
        where = f"torch computes here: {', '.join(computed)}"
    elif seen["foreign"]:
        where = f"a kernel of another file was launched: {', '.join(seen['foreign'])}"
    elif not blank:
        where = "the result came about while every Triton kernel of the file did nothing"
    elif count_kernels:
        counted = seat.watch(plan, case.limit_s, census=True, may_call=exercise.may_call)
        if isinstance(counted, Outcome):
            return counted if counted.verdict in ends else None
        seat.session.uncounted += counted["uncounted"][:1]
        if not counted["strangers"]:
            return None
        where = f"the GPU ran kernels that the file did not launch: {', '.join(counted['strangers'])}"
    else:
        return None
    return _said(lab, Verdict.POLICY, "FOREIGN_KERNEL", "foreign kernel", where)


def _forbidden(exercise: Exercise, operators: list[str]) -> list[str]:
    """Of torch operators that computed, those that the exercise leaves to the student's kernels."""
    return [name for name in operators if name not in exercise.may_call]


def _blank(arena: Arena, loan: Loan, before: torch.Tensor, exercise: Exercise) -> bool:
    """Whether an output holds no work: as it was before the call, or one value throughout, as after
    `zero_`.
    """
    if exercise.differentiable or not loan.tensor.span:
        return True  # filled by the worker's own copy from whatever torch.empty gave
    left = untouched(arena, loan, before)
    values = arena.view(loan.tensor)[~left]
    return values.numel() == 0 or bool((values == values[0]).all()) or bool(values.isnan().all())


def _call(seat: Seat, lab: Lab, exercise: Exercise, case: Case, inputs, outputs, rng: Rng, values):
    """One call: what went wrong besides the values, the outputs, and which elements were never written."""
    arena = seat.arena
    inputs_before = [arena.bytes(loan.start, loan.stop).clone() for loan in inputs]
    outputs_before = [poison_output(arena, loan, rng) for loan in outputs]
    finish(seat.session)
    plan = seat.prepare(exercise, [(inputs, outputs)], case.limit_s, named=numbers(values))
    failed = plan if isinstance(plan, Outcome) else seat.go(plan, case.limit_s)
    if failed:
        return failed, None, None
    computed = _forbidden(exercise, seat.computed)
    for loan, before in zip(inputs, inputs_before, strict=True):
        if not same_bits(arena.bytes(loan.start, loan.stop), before):
            where = f"{loan.name} differs from what was passed in"
            return _said(lab, Verdict.MUTATED_INPUT, "", "mutated", where), None, None
    for loan, before in zip(outputs, outputs_before, strict=True):
        offset = first_change_outside(arena, loan, before)
        if offset is not None:
            where, sign = _outside(loan, offset), "out of bounds write"
            if case.layouts.get(loan.name, PLAIN).pad:
                sign = "padded write"
            return _said(lab, Verdict.OUT_OF_BOUNDS, "WRITE", sign, where), None, None
    if computed:
        where = f"torch computes here: {', '.join(computed)}"
        return _said(lab, Verdict.POLICY, "FOREIGN_KERNEL", "foreign kernel", where), None, None
    got = [arena.view(loan.tensor).clone() for loan in outputs]
    masks = [untouched(arena, loan, before) for loan, before in zip(outputs, outputs_before, strict=True)]
    return None, got, masks


def finish(session: Session) -> None:
    """The judge's writes must have landed before another process is told to read them."""
    if session.device != "cpu":
        torch.cuda.synchronize()


def _wrong(lab, exercise, case, finding, values, expected, got, results) -> Outcome:
    k = exercise.outputs.index(finding.output)
    earlier = [result[k] for result in results]
    found = diagnose.diagnose(lab, exercise, case, finding, values, expected.reference[k], got[k], earlier)
    reason = "STALE" if found.sign == "stale" else finding.reason
    return Outcome(
        Verdict.WRONG,
        reason,
        where=_first(finding),
        pattern=found.pattern,
        cause=found.cause,
        hint=found.hint,
        used=finding.used,
        error_map=map_of(finding),
    )


def _first(finding) -> str:
    place = ", ".join(map(str, finding.index))
    return f"{finding.output}[{place}]   yours {finding.got:.6g}   expected {finding.expected:.6g}"


def _zeros_around(seat: Seat, lab: Lab, exercise: Exercise, case: Case, inputs, outputs, rng: Rng, values):
    """What the same call gives with zeros in place of the NaN around its inputs; None where it fails.

    A NaN that was read there is gone then, and one that arithmetic made is not.
    """
    for loan in inputs:
        seat.arena.bytes(loan.start, loan.stop).zero_()
        seat.arena.view(loan.tensor).copy_(values[loan.name])
    return _call(seat, lab, exercise, case, inputs, outputs, rng, values)[1]


def _read(lab: Lab, case: Case, finding) -> Outcome:
    """NaN from outside an input: from between its rows, or from behind them."""
    sign = "out of bounds read" if any(layout.pad for layout in case.layouts.values()) else "unmasked read"
    pattern = diagnose.pattern_of(finding)
    said = _said(lab, Verdict.OUT_OF_BOUNDS, "READ", sign, _first(finding), pattern)
    return replace(said, error_map=map_of(finding))


def _said(lab: Lab, verdict: Verdict, reason: str, sign: str, where: str, pattern: str = "") -> Outcome:
    found = diagnose.cause_of(lab, sign)
    return Outcome(verdict, reason, where=where, pattern=pattern, cause=found.cause, hint=found.hint)


def _with_cause(lab: Lab, failed: Outcome) -> Outcome:
    sign = diagnose.sign_of_failure(failed.where)
    if sign:
        found = diagnose.cause_of(lab, sign)
        return Outcome(**{**vars(failed), "cause": found.cause, "hint": found.hint})
    return failed


def _outside(loan: Loan, offset: int) -> str:
    """In words where outside its tensor an element was written."""
    if 0 <= offset < loan.tensor.span:
        return f"{loan.name}: an element between two rows was written, {offset} elements from the first"
    if offset < 0:
        return f"{loan.name}: {-offset} elements before its first one, memory was written"
    return f"{loan.name}: memory was written past its end; nearest at +{offset - loan.tensor.span} elements"

"""Grade the correctness of one case: run the student's function on lent memory and check its outputs."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch

from grader.course.signatures import Inputs, Shapes, Tensors
from grader.course.spec import PLAIN, Case, Exercise, Lab, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge import comparison, diagnosis, facts, returned, usual_config, usual_layout, witness
from grader.judge.dtype_dependence import by_dtype
from grader.judge.exchange import Exchange
from grader.judge.foreign_work import by_host, foreign_operators, foreign_work
from grader.judge.inputs import (
    Placer,
    Rng,
    band_input,
    draw,
    fill,
    finish_writes,
    first_change_outside,
    held,
    in_dtype,
    numbers,
    output_shapes,
    poison_output,
    put_back,
    same_bits,
    shapes_in,
    tensors,
    untouched,
    whole_outside,
)
from grader.results.error_map import map_of
from grader.results.outcome import Outcome
from grader.worker.session import Session
from grader.worker.shared_memory import TORCH_DTYPES, Buffer
from grader.worker.submission_worker import SubmissionWorker

# Judge and worker take turns: idle threads of one would spin and slow the other down.
torch.set_num_threads(1)


# Inputs may happen to allow a wide tolerance, where the error of PyTorch's own operator is unusually large.
ATTEMPTS = 3
MOST_TUNED = 4096  # elements of a case in which autotuned kernels run once more
FIRST_DECOY = 2_000_000  # call numbers from here on give data that is never graded


class Written(NamedTuple):
    """The outputs of a call, and for each a mask of the elements that were never written.

    `decoys` are the inputs that host code could see; None if there were no others than the graded ones.
    `ungated` is what the same call wrote for them before the gate was shut; None if it was not made so.
    """

    outputs: list[torch.Tensor]
    untouched: list[torch.Tensor]
    decoys: Inputs | None = None
    ungated: Written | None = None


def lay_out(
    exercise: Exercise, case: Case, placer: Placer, shapes: Shapes
) -> tuple[list[Buffer], list[Buffer]]:
    """Place buffers for the inputs and outputs of one call, in the order of its arguments."""
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


def runs(exercise: Exercise, device: str, is_gated: bool = False) -> tuple[int, ...]:
    """Return the inputs of each run of a case, by number: the first ones, which may be repeated, and others.

    Two runs on the same inputs must give the same bits, but for sums that programs may split. The interpreter
    runs programs one after the other, so there a case is repeated only if its second result is wrong, or if
    it makes a random choice. Where calls are gated, each comes after one on other inputs, and the first of
    those is checked: no run needs others.
    """
    if exercise.follow is not None:
        return (0, 0, 1)
    if is_gated:
        return (0, 0)
    return (0, 1) if device == "cpu" else (0, 0, 1)


def grade_case(
    worker: SubmissionWorker, lab: Lab, exercise: Exercise, case: Case, count_kernels: bool = False
) -> Outcome:
    """Run one case and check the outputs, then on other inputs, for which a stored earlier result is wrong.

    See `runs` for how often. Then check that the student's kernels did the work; with `count_kernels` also on
    the GPU.
    """

    def grade(one: Case) -> Outcome:
        return _grade(worker, lab, exercise, one, count_kernels)

    def wrapping() -> str | None:
        seen = worker.witnessed
        if not seen.launches:  # nothing watches a GPU
            return None
        return facts.wraps(seen.wraps, worker.text) if seen.wraps else ""

    return usual_layout.explained(lab, exercise, case, grade, wrapping)


class _Wanted:
    """The inputs of a case's calls, and what is expected of them; each attempt has other inputs.

    `compute` is called while the worker makes the first call. `broken` is an outcome if the case itself is
    at fault, and `accepted` names worthless answers that would pass on these inputs. `configs` are those that
    the calls ran with, where they may differ.
    """

    def __init__(self, session: Session, exercise: Exercise, case: Case, calls: Sequence[int], attempt: int):
        self._session, self._exercise, self._case, self._attempt = session, exercise, case, attempt
        self._calls = sorted({*calls})
        self.inputs = [self._draw(0)]
        self.expected: list[comparison.Expected] = []
        self.broken: Outcome | None = None
        self.accepted: list[str] = []
        self.configs: list[usual_config.Configs] = []

    def _draw(self, call: int) -> Inputs:
        session = self._session
        return draw(self._exercise, self._case, session.seed, session.device, 2 * self._attempt + call)

    def compute(self) -> None:
        """Compute what is expected, and look whether a worthless answer would pass."""
        exercise, case = self._exercise, self._case
        self.inputs.append(self._draw(1))
        self.expected = [comparison.expect(exercise, case, self.inputs[call]) for call in self._calls]
        words = comparison.invalid(case, self.expected)
        if words:  # a fault of the course, which costs no points
            self.broken = Outcome(Verdict.GRADER_FAULT, Reason.INVALID_REFERENCE, where=words)
            return
        if len(self.expected) == 1:
            others = comparison.rounded(exercise, case, self.inputs[1])
        else:
            others = self.expected[1].rounded
        self.accepted = comparison.accepted_nulls(exercise, case, self.expected[0], self.inputs[0], others)


def _grade(
    worker: SubmissionWorker, lab: Lab, exercise: Exercise, case: Case, count_kernels: bool
) -> Outcome:
    failed = worker.start()
    if failed:
        return failed
    calls = runs(exercise, worker.session.device, worker.is_gated)
    for attempt in range(ATTEMPTS):
        wanted = _Wanted(worker.session, exercise, case, calls, attempt)
        grade = partial(_graded_on, wanted, calls, worker, lab, exercise, case, count_kernels)
        again = partial(_with_one_config, worker, grade)
        outcome = usual_config.explained(grade(), wanted.configs, again, _is_tuned(case))
        if not wanted.accepted:
            break
    return outcome


def _with_one_config(
    worker: SubmissionWorker, grade: Callable[..., Outcome], config: usual_config.Configs | None = None
) -> Outcome:
    return worker.start() or grade(one_config=config or {})


def _is_tuned(case: Case) -> bool:
    """Return whether kernels run once more in a case: that takes time where it is large."""
    return math.prod(size for size in case.params.values() if isinstance(size, int)) <= MOST_TUNED


def _graded_on(
    wanted: _Wanted,
    calls: Sequence[int],
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    count_kernels: bool,
    one_config: usual_config.Configs | None = None,
) -> Outcome:
    """Make the calls of a case; on a CPU each with another config of its kernels.

    Or all with the same: with those in `one_config`, if it has any.
    """
    session = worker.session
    inputs, outputs = lay_out(exercise, case, Placer(), shapes_in(wanted.inputs[0]))
    rng = Rng(session.seed, f"poison/{exercise.name}/{case.name}", "cpu")
    for buffer in inputs:
        band_input(worker.arena, buffer)
    results: list[list[torch.Tensor]] = []
    used, launched = 0.0, Counter[str]()
    unlike: Outcome | None = None
    # In the interpreter nothing is compiled, so that another config costs nothing.
    varies = exercise.follow is None and session.device == "cpu" and one_config is None
    for call in calls:
        values = wanted.inputs[call]
        # A random choice is the same for every config.
        changes_config = exercise.follow is not None and call == 0 and bool(results)
        written = _call(
            worker,
            lab,
            exercise,
            case,
            inputs,
            outputs,
            rng,
            values,
            opens_first=not results or changes_config,
            other_configs=changes_config or (varies and bool(results)),
            tunes=varies and bool(results) and _is_tuned(case),
            configs=one_config or {},
            meanwhile=None if wanted.expected else wanted.compute,
        )
        if varies:
            wanted.configs.append(worker.picked(case.limit_s))
        if wanted.broken:
            return wanted.broken
        if wanted.accepted:
            where = f"this case would accept {wanted.accepted[0]} as an answer"
            return Outcome(Verdict.GRADER_FAULT, Reason.INVALID_CASE, where=where)
        if isinstance(written, Outcome):
            return _with_cause(lab, written)
        expected = wanted.expected
        got, masks, decoys, ungated = written
        shapes = {buffer.name: buffer.tensor.shape for buffer in outputs}
        unlike = returned.fault(lab, exercise, case, shapes, worker.returned, worker.text)
        if unlike and case.allocates:
            return unlike  # there is nothing to compare
        seen = worker.witnessed
        race = witness.race(lab, seen)
        launched.update(worker.launched)
        earlier = results[0] if call else None
        finding, share = comparison.examine(exercise, case, expected[call], got, masks, earlier)
        host = by_host(worker, lab, exercise, case, finding, decoys, expected[call], got)
        barred = host or witness.read_outside(lab, case, seen, finding)
        if barred:
            return barred
        if finding:
            is_right = partial(comparison.is_right, exercise, case, expected[call])
            moved = returned.in_another_order(lab, exercise, case, got, is_right, worker.text)
            if moved:
                return moved
        # Atomic additions come in another order in each run, which changes digits and nothing else.
        any_order = exercise.splits_sums and not finding and adds_in_any_order(worker.text)
        if finding and call == 0 and results and not changes_config:
            finding = None  # the first run on these inputs was right: reported below as nondeterministic
        if finding and call and len(results) == 1:
            again = _call(worker, lab, exercise, case, inputs, outputs, rng, wanted.inputs[0])
            if isinstance(again, Written) and not all(map(same_bits, results[0], again.outputs)):
                return _unlike(lab, exercise, results[0], again.outputs)
        if finding:
            # On a CPU without gaps between rows, the interpreter would have seen a read outside.
            gaps = session.device != "cpu" or any(layout.has_gaps for layout in case.layouts.values())
            if gaps and finding.reason is Reason.NONFINITE and finding.got != finding.got:
                zeros = _zeros_around(worker, lab, exercise, case, inputs, outputs, rng, values)
                k = exercise.outputs.index(finding.output)
                if zeros is not None and not zeros[k][finding.index].isnan():
                    return _read(lab, case, finding)
            wrong = _wrong(lab, exercise, case, finding, values, expected[call], got, results)
            elsewhere = unlike if finding.reason is Reason.UNWRITTEN and bool(finding.bad.all()) else None
            if elsewhere:
                wrong = replace(wrong, frames=elsewhere.frames)
                return returned.made_elsewhere(wrong, exercise, case, worker.text)
            return replace(wrong, plain_cause=race.plain_cause) if race else wrong
        if call == 0 and results and not any_order and not all(map(same_bits, results[0], got)):
            if not changes_config:
                return _unlike(lab, exercise, results[0], got)
            again = _call(worker, lab, exercise, case, inputs, outputs, rng, values)
            if isinstance(again, Outcome):
                return _with_cause(lab, again)
            chosen = _unlike_by_config(lab, exercise, case, values, results[0], got, again.outputs)
            if chosen:
                return chosen
        if ungated and decoys is not None and not results:
            at_first = _wrong_at_first(exercise, case, decoys, ungated, expected[call])
            if at_first:
                of_decoys = comparison.expect(exercise, case, decoys)
                again = _call(worker, lab, exercise, case, inputs, outputs, rng, decoys)
                if isinstance(again, Outcome):
                    return _with_cause(lab, again)
                later, _ = comparison.examine(exercise, case, of_decoys, again.outputs, again.untouched)
                if later:  # the inputs decide, and not which call it is
                    return _wrong(lab, exercise, case, later, decoys, of_decoys, again.outputs, results)
                return only_at_first(lab, at_first, is_tuned="autotune" in worker.text)
        if race:
            return race
        results.append(got)
        used = max(used, share)
    foreign = foreign_work(worker, lab, exercise, case, inputs, outputs, rng, count_kernels)
    if case.also_in and not foreign and not unlike:  # last: its tensors lie where those of the case lay
        unlike = _unlike_by_dtype(worker, lab, exercise, case, wanted.inputs[0], results[0], rng)
    return foreign or unlike or Outcome(Verdict.PASS, share=1.0, used=used, launched=launched)


def _wrong_at_first(
    exercise: Exercise, case: Case, decoys: Inputs, written: Written, expected: comparison.Expected
) -> comparison.Finding | None:
    """Return what is wrong with the outputs of a first call, on the decoys; None if nothing is.

    `expected` is that of the graded inputs, whose tolerances are tried first: to derive others takes time.
    """
    if exercise.follow is None and comparison.right_by(exercise, case, decoys, written.outputs, expected):
        return None
    of_decoys = comparison.expect(exercise, case, decoys)
    finding, _ = comparison.examine(exercise, case, of_decoys, *written[:2])
    return finding


def only_at_first(lab: Lab, finding: comparison.Finding, is_tuned: bool) -> Outcome:
    """Return the outcome of a case whose first call is wrong, and whose next call is right.

    Unless the file `is_tuned`, kernels run as often in the first call as in others: two runs differ.
    """
    first = finding.first_wrong(first_call=True)
    symptom = Symptom.FIRST_CALL if is_tuned else Symptom.NONDETERMINISTIC
    outcome = diagnosis.diagnosed(lab, Verdict.WRONG, finding.reason, symptom, first.words, finding)
    return replace(outcome, first_wrong=first, used=finding.used, error_map=map_of(finding))


def adds_in_any_order(text: str) -> bool:
    """Return whether a Python file has atomic additions, whose order differs from run to run."""
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:
        return False
    return any(isinstance(one, ast.Attribute) and one.attr == "atomic_add" for one in nodes)


def _unlike(lab: Lab, exercise: Exercise, first: Tensors, second: Tensors) -> Outcome:
    where, symptom = "two runs on the same inputs differ", Symptom.NONDETERMINISTIC
    outcome = diagnosis.diagnosed(lab, Verdict.WRONG, Reason.NONDETERMINISTIC, symptom, where)
    return replace(outcome, error_map=map_of(comparison.difference(exercise, first, second)))


def _unlike_by_config(
    lab: Lab, exercise: Exercise, case: Case, values: Inputs, first: Tensors, other: Tensors, again: Tensors
) -> Outcome | None:
    """Return the outcome of a random choice that differs in two runs; None if only digits do.

    The `other` run had another config of the autotuner than `first` and `again`.
    """
    if not all(map(same_bits, first, again)):
        return _unlike(lab, exercise, first, again)
    if _same_choice(exercise, case, values, first, other):
        return None
    where, symptom = "two configs of the autotuner give different results", Symptom.OTHER_CONFIG
    outcome = diagnosis.diagnosed(lab, Verdict.WRONG, Reason.NONDETERMINISTIC, symptom, where)
    return replace(outcome, error_map=map_of(comparison.difference(exercise, first, other)))


def _unlike_by_dtype(
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    values: Inputs,
    first: Tensors,
    rng: Rng,
) -> Outcome | None:
    """Return the outcome of a random choice that differs from the `first` one in the case's other dtype."""
    other, values = replace(case, dtype=case.also_in), in_dtype(values, TORCH_DTYPES[case.also_in])
    inputs, outputs = lay_out(exercise, other, Placer(), shapes_in(values))
    for buffer in inputs:
        band_input(worker.arena, buffer)
    written = _call(worker, lab, exercise, other, inputs, outputs, rng, values, opens_first=True)
    if isinstance(written, Outcome):
        return _with_cause(lab, written)
    if _same_choice(exercise, other, values, first, written.outputs):
        return None
    where, symptom = f"the same call in {other.dtype} makes another random choice", Symptom.OTHER_DTYPE
    outcome = diagnosis.diagnosed(lab, Verdict.WRONG, Reason.NONDETERMINISTIC, symptom, where)
    found = by_dtype(worker.text, exercise.name)
    if len(found) != 1:  # one of several may be right
        return outcome
    line, code = found.popitem()
    cause = f"{outcome.cause}; line {line}: `{code}` depends on the dtype"
    return replace(outcome, cause=cause, plain_cause=cause)


def _same_choice(exercise: Exercise, case: Case, values: Inputs, first: Tensors, second: Tensors) -> bool:
    """Return whether two results show the same random choice for the inputs of a case."""
    assert exercise.follow is not None
    wide = in_dtype(values, torch.float64)
    one, two = (exercise.follow(case, wide, [out.double() for out in outs]) for outs in (first, second))
    return all(map(same_bits, one, two))


def _call(
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    rng: Rng,
    values: Inputs,
    opens_first: bool = False,
    other_configs: bool = False,
    tunes: bool = False,
    configs: usual_config.Configs = MappingProxyType({}),
    meanwhile: Callable[[], None] | None = None,
) -> Written | Outcome:
    """Make one call: return what it wrote, or an outcome if something other than the values is wrong.

    With `opens_first` a gated call comes after one with the gate open, which compiles and allocates. With
    `other_configs` the autotuner chooses among configs that it has not chosen yet, and runs kernels once
    before if it `tunes`; those in `configs` have this one. `meanwhile` is called while the worker is busy.
    """
    arena, session = worker.arena, worker.session
    named = numbers(values)
    plan = worker.prepare(
        exercise,
        [(inputs, outputs)],
        case.limit_s,
        named=named,
        allocates=case.allocates,
        separate=case.separate,
        other_configs=other_configs,
        tunes=tunes,
        configs=configs,
    )
    if isinstance(plan, Outcome):
        return plan
    worker.decoys += 1
    drawn = draw(exercise, case, session.seed, session.device, FIRST_DECOY + worker.decoys)
    decoys = {**values, **tensors(drawn)}
    exchange: Exchange | None = None
    ungated: Written | None = None
    if session.device == "cpu":
        exchange = Exchange(arena, inputs, values, decoys)
    else:
        around = [held(arena, buffer) for buffer in inputs]
        if worker.is_gated and opens_first:
            first = _ungated(worker, case, inputs, outputs, rng, plan, decoys, meanwhile)
            if isinstance(first, Outcome):
                return first
            ungated = first
        failed = _queue(worker, case, inputs, outputs, rng, plan, decoys)
        if failed:
            return failed
        for buffer, band in zip(inputs, around, strict=True):
            put_back(arena, buffer, band)
        fill(arena, inputs, values)
    inputs_before = [held(arena, buffer) for buffer in inputs]
    outputs_before = [poison_output(arena, buffer, rng) for buffer in outputs]
    finish_writes(session.device)
    if exchange:
        failed = worker.go(
            plan, case.limit_s, exchange, exercise.may_call, witnessed=True, meanwhile=meanwhile
        )
    else:
        opened = worker.open(lambda: None, case.limit_s)
        failed = opened if isinstance(opened, Outcome) else None
    if failed:
        return failed
    if exchange:
        exchange.end()
    changed = [*(exchange.changed if exchange else ())]
    same = [same_bits(held(arena, one), was) for one, was in zip(inputs, inputs_before, strict=True)]
    whole = [whole_outside(arena, *pair) for pair in zip(outputs, outputs_before, strict=True)]
    answers = torch.stack(same + whole).tolist()  # the GPU is waited for once
    changed += [buffer.name for buffer, is_same in zip(inputs, answers, strict=False) if not is_same]
    outside = [
        None if is_whole else first_change_outside(arena, buffer, before)
        for buffer, before, is_whole in zip(outputs, outputs_before, answers[len(same) :], strict=True)
    ]
    masks = [untouched(arena, *pair) for pair in zip(outputs, outputs_before, strict=True)]
    written = Written([arena.view(buffer.tensor).clone() for buffer in outputs], masks, decoys, ungated)
    foreign = foreign_operators(worker, lab, exercise)
    if not exchange:
        finish_writes(session.device)  # all has been read, and only now may the worker run again
        failed = worker.finish(case.limit_s)
    return (
        failed
        or _mutated(lab, exercise, case, changed, inputs, worker)
        or witness.written_outside(lab, case, worker.witnessed)
        or _out_of_place(lab, case, outputs, outside)
        or foreign
        or written
    )


def _mutated(
    lab: Lab,
    exercise: Exercise,
    case: Case,
    changed: Sequence[str],
    inputs: Sequence[Buffer],
    worker: SubmissionWorker,
) -> Outcome | None:
    """Return the outcome for inputs that were `changed`; the worker may have seen what stores into them."""
    if not changed:
        return None
    where = f"{changed[0]} is an input and was changed by the call"
    places = {buffer.tensor.offset for buffer in inputs if buffer.name == changed[0]}
    lines = sorted({one.line for one in worker.witnessed.reaches if one.writes and one.offset in places})
    if lines:
        where += f": line {lines[0]} stores into it"
    outcome = diagnosis.diagnosed(lab, Verdict.MUTATED_INPUT, Reason.NONE, Symptom.MUTATED, where)
    return returned.input_as_result(outcome, exercise, case, worker.text, changed[0])


def _out_of_place(
    lab: Lab, case: Case, outputs: Sequence[Buffer], outside: Sequence[int | None]
) -> Outcome | None:
    """Return the outcome for elements `outside` of an output that have changed."""
    for buffer, offset in zip(outputs, outside, strict=True):
        if offset is not None:
            where, symptom = _outside(buffer, offset), Symptom.OUT_OF_BOUNDS_WRITE
            if case.layouts.get(buffer.name, PLAIN).has_gaps:
                symptom = Symptom.PADDED_WRITE
            return diagnosis.diagnosed(lab, Verdict.OUT_OF_BOUNDS, Reason.WRITE, symptom, where)
    return None


def _ungated(
    worker: SubmissionWorker,
    case: Case,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    rng: Rng,
    plan: int,
    decoys: Inputs,
    meanwhile: Callable[[], None] | None,
) -> Written | Outcome:
    """Run a plan with the gate open, on inputs that are not graded; return what it wrote."""
    arena = worker.arena
    fill(arena, inputs, decoys)
    before = [poison_output(arena, buffer, rng) for buffer in outputs]
    finish_writes(worker.session.device)
    failed = worker.go(plan, case.limit_s, meanwhile=meanwhile)
    if failed:
        return failed
    masks = [untouched(arena, *pair) for pair in zip(outputs, before, strict=True)]
    return Written([arena.view(buffer.tensor).clone() for buffer in outputs], masks)


def _queue(
    worker: SubmissionWorker,
    case: Case,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    rng: Rng,
    plan: int,
    decoys: Inputs,
) -> Outcome | None:
    """Queue a plan behind the gate, on inputs that are not graded."""
    fill(worker.arena, inputs, decoys)
    for buffer in outputs:
        poison_output(worker.arena, buffer, rng)
    finish_writes(worker.session.device)
    return worker.queue(plan, case.limit_s)


def _wrong(
    lab: Lab,
    exercise: Exercise,
    case: Case,
    finding: comparison.Finding,
    values: Inputs,
    expected: comparison.Expected,
    got: Tensors,
    results: Sequence[Tensors],
) -> Outcome:
    k = exercise.outputs.index(finding.output)
    earlier = [result[k] for result in results]
    found = diagnosis.diagnose(lab, exercise, case, finding, values, expected.reference[k], got[k], earlier)
    reason = Reason.STALE if found.symptom is Symptom.STALE else finding.reason
    first = finding.first_wrong()
    return Outcome(
        Verdict.WRONG,
        reason,
        where=first.words,
        first_wrong=first,
        pattern=found.pattern,
        cause=found.cause,
        symptom=found.symptom,
        hint=found.hint,
        used=finding.used,
        error_map=map_of(finding),
    )


def _zeros_around(
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    rng: Rng,
    values: Inputs,
) -> list[torch.Tensor] | None:
    """Repeat a call with zeros in place of the NaN around its inputs; return its outputs, None if it fails.

    A NaN that was read there then disappears; one from arithmetic does not.
    """
    for buffer in inputs:
        for piece in buffer.pieces:
            worker.arena.bytes(piece.start, piece.stop).zero_()
    written = _call(worker, lab, exercise, case, inputs, outputs, rng, values)
    return None if isinstance(written, Outcome) else written.outputs


def _read(lab: Lab, case: Case, finding: comparison.Finding) -> Outcome:
    """Return the outcome for a NaN read outside of an input: between its rows, or past its end."""
    padded = any(layout.has_gaps for layout in case.layouts.values())
    symptom = Symptom.OUT_OF_BOUNDS_READ if padded else Symptom.UNMASKED_READ
    first = finding.first_wrong()
    outcome = diagnosis.diagnosed(lab, Verdict.OUT_OF_BOUNDS, Reason.READ, symptom, first.words, finding)
    return replace(outcome, first_wrong=first, error_map=map_of(finding))


def _with_cause(lab: Lab, failed: Outcome) -> Outcome:
    waits = {Reason.HOST_READ: Symptom.HOST_READ, Reason.HOST_WAIT: Symptom.HOST_WAIT}
    symptom = waits.get(failed.reason) or diagnosis.symptom_of_error(failed.where)
    if symptom:
        found = diagnosis.cause_of(lab, symptom)
        return replace(failed, cause=found.cause, hint=found.hint)
    return failed


def _outside(buffer: Buffer, offset: int) -> str:
    """Say where an element outside of the tensor was written."""
    if buffer.parts:
        return f"{buffer.name}: memory outside of its rows was written"
    if 0 <= offset < buffer.tensor.span:
        return f"{buffer.name}: memory between two rows was written, {offset} elements after the first"
    if offset < 0:
        return f"{buffer.name}: memory was written {-offset} elements before the first"
    return (
        f"{buffer.name}: memory was written past its end; nearest at +{offset - buffer.tensor.span} elements"
    )

"""Whether something other than the file's own kernels computed a result: host code, torch, other kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from grader.course.signatures import Inputs, Tensors
from grader.course.spec import Case, Exercise, Lab, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge import comparison
from grader.judge.diagnosis import diagnosed
from grader.judge.inputs import (
    Rng,
    draw,
    fill,
    finish_writes,
    is_blank,
    numbers,
    poison_output,
    untouched,
)
from grader.results.findings import Frame
from grader.results.outcome import Outcome
from grader.worker.messages import IN_BACKWARD, AuditReport
from grader.worker.shared_memory import Buffer
from grader.worker.submission_worker import SubmissionWorker

MOST_STEPS = 20_000  # bytecode instructions of host code in a call; hooks and pruning take a few hundred each
USUAL_STEPS = 500


def by_host(
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    finding: comparison.Finding | None,
    decoys: Inputs | None,
    expected: comparison.Expected,
    got: Tensors,
) -> Outcome | None:
    """Return POLICY if the result was computed from what host code could see, or if it read any data.

    A result that follows from `expected`, the graded inputs, as well says nothing: if all is dropped, each
    element is right for any inputs, and only the choice of elements is wrong.
    """
    lines = tuple(Frame(line=one.line, function=one.function, code=one.code) for one in worker.reads)
    graded = finding and comparison.agrees(exercise, case, expected, got, finding.output)
    if finding and decoys is not None and not graded:
        from_decoys = comparison.expect(exercise, case, decoys)
        # Where what the graded inputs give is right for the decoys as well, so may be what is wrong for both.
        either = comparison.agrees(exercise, case, from_decoys, expected.rounded, finding.output)
        if not either and comparison.agrees(exercise, case, from_decoys, got, finding.output):
            where = (
                f"{finding.output} was not computed by the file's kernels: it is right for the inputs that "
                "host code could see, and the kernels were given others"
            )
            return replace(_foreign(lab, where), frames=lines)
    if not worker.reads or not any(value.numel() for value in got):  # nothing could be gained for no output
        return None
    where = f"host code reads the data: {worker.reads[0].what}"
    outcome = diagnosed(lab, Verdict.POLICY, Reason.HOST_READ, Symptom.HOST_READ, where)
    return replace(outcome, frames=lines)


def _foreign(lab: Lab, where: str) -> Outcome:
    return diagnosed(lab, Verdict.POLICY, Reason.FOREIGN_KERNEL, Symptom.FOREIGN_KERNEL, where)


def foreign_work(
    worker: SubmissionWorker,
    lab: Lab,
    exercise: Exercise,
    case: Case,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    rng: Rng,
    count_kernels: bool,
) -> Outcome | None:
    """Return POLICY if anything other than the file's own kernels computes the result.

    That is: outputs are written although every Triton kernel does nothing, torch computes a part, or the GPU
    runs a kernel that the file did not launch. The inputs are new, so that stale memory cannot be a result.
    """
    arena, values = worker.arena, draw(exercise, case, worker.session.seed, worker.session.device, 2)
    fill(arena, inputs, values)
    before = [poison_output(arena, buffer, rng) for buffer in outputs]
    finish_writes(worker.session.device)
    plan = worker.prepare(
        exercise,
        [(inputs, outputs)],
        case.limit_s,
        named=numbers(values),
        allocates=case.allocates,
        separate=case.separate,
    )
    if isinstance(plan, Outcome):
        return _only_if_it_ended(plan)
    # Native code calls neither torch nor Triton.
    if not exercise.native:
        seen = worker.watch(plan, case.limit_s)
        # The worker itself copies the results of a differentiable function, which may come from torch.empty.
        blank = (
            exercise.differentiable
            or case.allocates
            or all(
                is_blank(arena.view(buffer.tensor), untouched(arena, buffer, was))
                for buffer, was in zip(outputs, before, strict=True)
            )
        )
        found = audited(lab, exercise, seen, blank)
        if found:
            return found
    return other_kernels(worker, lab, exercise, plan, case.limit_s) if count_kernels else None


def other_kernels(
    worker: SubmissionWorker, lab: Lab, exercise: Exercise, plan: int, limit_s: float, must_run: bool = False
) -> Outcome | None:
    """Run a plan under CUPTI; return POLICY if the GPU runs a kernel that the file did not launch.

    With `must_run` any failure is returned: the plan has run before, and fails where it is watched.
    """
    counted = worker.watch(plan, limit_s, kernels_counted=True, may_call=exercise.may_call)
    if isinstance(counted, Outcome):
        return counted if must_run else _only_if_it_ended(counted)
    worker.session.uncounted += counted.uncounted[:1]
    if not counted.strangers:
        return None
    return _foreign(lab, f"the GPU ran kernels that the file did not launch: {', '.join(counted.strangers)}")


def audited(lab: Lab, exercise: Exercise, seen: AuditReport | Outcome, blank: bool) -> Outcome | None:
    """Return POLICY if a call in which every Triton kernel did nothing has computed, or has failed.

    `seen` is what was seen in it, and `blank` whether no output was written.
    """
    if isinstance(seen, Outcome):
        if seen.verdict is not Verdict.CRASHED:
            return _only_if_it_ended(seen)
        where = f"the call fails if the file's kernels are replaced by empty ones: {seen.where}"
        return replace(_foreign(lab, where), frames=seen.frames)
    computed = _forbidden(exercise, seen.operators)
    if computed:
        where = f"torch operators compute in this call: {', '.join(computed)}"
    elif seen.steps > MOST_STEPS:
        where = (
            f"host code executes {seen.steps:,} or more instructions of Python in a call, where about "
            f"{USUAL_STEPS} launch a kernel: what is graded is that kernels compute"
        )
    elif seen.foreign:
        where = f"a kernel of another file was launched: {', '.join(seen.foreign)}"
    elif not blank:
        where = "the result was written although every Triton kernel of the file was replaced by an empty one"
    else:
        return None
    return _foreign(lab, where)


def foreign_operators(worker: SubmissionWorker, lab: Lab, exercise: Exercise) -> Outcome | None:
    """Return POLICY if torch operators computed in the last call that the exercise does not permit."""
    computed = _forbidden(exercise, worker.computed)
    if not computed:
        return None
    where = f"torch operators compute in this call: {', '.join(computed)}"
    lines = [one for one in worker.computed_at if one.what in computed]
    frames = tuple(Frame(line=one.line, function=one.function, code=one.code) for one in lines)
    return replace(_foreign(lab, where), frames=frames)


def _only_if_it_ended(failed: Outcome) -> Outcome | None:
    """Return a failed audit only if a limit ended the worker: without its kernels a function may fail."""
    ends = (Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.RESOURCE_LIMIT)
    return failed if failed.verdict in ends else None


def _forbidden(exercise: Exercise, operators: Iterable[str]) -> list[str]:
    """Return those of the torch operators that computed which the exercise does not permit.

    Those that it permits may do a part of a backward pass.
    """
    permitted = {f"{name}{IN_BACKWARD}" for name in exercise.may_call}
    return [name for name in operators if name not in permitted]

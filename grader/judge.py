"""Correctness of one case: lend inputs, have the student's function run, and decide from the judge's own
memory.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from grader import compare, diagnose
from grader.inputs import (
    Loan,
    Placer,
    Rng,
    band_input,
    draw,
    first_change_outside,
    output_shapes,
    poison_output,
    same_bits,
    untouched,
)
from grader.lending import Arena
from grader.outcome import Outcome, failure
from grader.protocol import Kind
from grader.sandbox import KEPT_ENVIRONMENT, Worker, WorkerGoneError
from grader.session import Session
from grader.spec import PLAIN, Case, Exercise, Lab, Verdict

FILE_BYTES = 256 * 1024 * 1024  # largest file a worker may write: a generous Triton cache entry
LOAD_LIMIT_S = 60.0


class Seat:
    """A place for one file: a worker that has imported it and mapped an arena, replaced after it dies."""

    def __init__(
        self, session: Session, file: Path, arena: Arena, *, interpreted=False, tuning="chance", arch=0
    ):
        self.session, self.arena = session, arena
        self.folder = session.private_folder(file.stem)
        self._file, self._interpreted, self._tuning, self._arch = file, interpreted, tuning, arch
        self._worker: Worker | None = None
        self._plans = 0
        self._never_loads: Outcome | None = None

    def start(self) -> Outcome | None:
        """Have a living worker with the file imported; an outcome where that fails."""
        if self._never_loads or (self._worker and self._worker.alive):
            return self._never_loads
        copy = self.folder / self._file.name
        shutil.copyfile(self._file, copy)
        on_cpu = self.arena.device == "cpu"
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        for name in ("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
            environment[name] = str(self.folder)
        # Fresh in each run, and shared by the workers of one file: what was compiled once need not be again.
        environment["TRITON_CACHE_DIR"] = str(self.session.cache(self._file))
        if self._interpreted:
            environment["TRITON_INTERPRET"] = "1"
        setup = {
            "folder": str(self.folder),
            "file": str(copy),
            "environment": environment,
            "file_bytes": FILE_BYTES,
            "device": self.arena.device,
            "arena_bytes": self.arena.size,
            "handle": "" if on_cpu else self.arena.handle.hex(),
            "tuning": self._tuning,
            "seed": self.session.seed,
            "arch": self._arch,
        }
        parent = self.session.parent(self._interpreted)
        self._worker = Worker(parent, self.arena.handle if on_cpu else None)
        self._never_loads = self._ask(Kind.SETUP, setup, LOAD_LIMIT_S, loading=True)
        return self._never_loads

    def prepare(self, exercise: Exercise, calls, limit_s: float, function: str = "") -> int | Outcome:
        """Announce a list of calls, each (inputs, outputs) as loans; returns the plan's number."""
        self._plans += 1
        payload = {
            "plan": self._plans,
            "function": function or exercise.name,
            "differentiable": exercise.differentiable,
            "calls": [
                ([_place(loan) for loan in inputs], {loan.name: _place(loan) for loan in outputs})
                for inputs, outputs in calls
            ],
        }
        failed = self._ask(Kind.PREPARE, payload, limit_s)
        return failed or self._plans

    def go(self, plan: int, limit_s: float) -> Outcome | None:
        """Run a prepared plan to its end; an outcome where it did not get there."""
        return self._ask(Kind.GO, {"plan": plan}, limit_s)

    def _ask(self, kind: Kind, payload: dict, limit_s: float, loading: bool = False) -> Outcome | None:
        self.claimed_us = None
        try:
            answer, reply = self._worker.ask(kind, payload, limit_s)
        except WorkerGoneError as gone:
            verdict = Verdict.TIMEOUT if gone.timeout else Verdict.CRASHED
            return Outcome(verdict, where=gone.reason, printed=self._worker.printed)
        if answer is Kind.FAILED:
            outcome = failure(reply, loading)
            if loading or (outcome.verdict is Verdict.CRASHED and reply.get("category") == "illegal access"):
                self._worker.end()  # its CUDA context, or its module, is of no further use
            return outcome
        claim = reply.get("claimed_us")
        self.claimed_us = float(claim) if isinstance(claim, (int, float)) else None
        return None

    @property
    def printed(self) -> str:
        """What the student's code has printed so far."""
        return self._worker.printed if self._worker else ""

    def close(self) -> None:
        """End the worker."""
        if self._worker:
            self._worker.end()


def _place(loan: Loan):
    tensor = loan.tensor
    return [tensor.offset, list(tensor.shape), list(tensor.strides), tensor.dtype]


def lay_out(exercise: Exercise, case: Case, placer: Placer, shapes) -> tuple[list[Loan], list[Loan]]:
    """Loans for the inputs and outputs of one call, in the order of the call."""
    inputs = [
        placer.place(name, shape, case.dtype, case.layouts.get(name, PLAIN)) for name, shape in shapes.items()
    ]
    results = output_shapes(exercise, shapes)
    outputs = [
        placer.place(name, shape, case.dtype, case.layouts.get(name, PLAIN))
        for name, shape in results.items()
    ]
    return inputs, outputs


def grade_case(seat: Seat, lab: Lab, exercise: Exercise, case: Case) -> Outcome:
    """Run one case twice on the same fresh inputs and judge what lies in the lent memory after each."""
    session, arena = seat.session, seat.arena
    values = draw(exercise, case, session.seed, session.device)
    inputs, outputs = lay_out(exercise, case, Placer(), {name: tuple(v.shape) for name, v in values.items()})
    rng = Rng(session.seed, f"poison/{exercise.name}/{case.name}", session.device)
    for loan in inputs:
        band_input(arena, loan)
        arena.view(loan.tensor).copy_(values[loan.name])
    before_inputs = [arena.bytes(loan.start, loan.stop).clone() for loan in inputs]
    failed = seat.start()
    if failed:
        return failed
    expected, first = None, None
    for _ in range(2):
        before = [poison_output(arena, loan, rng) for loan in outputs]
        _finish(session)
        plan = seat.prepare(exercise, [(inputs, outputs)], case.limit_s)
        failed = plan if isinstance(plan, Outcome) else seat.go(plan, case.limit_s)
        if failed:
            return _with_cause(lab, failed)
        for loan, region in zip(inputs, before_inputs, strict=True):
            if not same_bits(arena.bytes(loan.start, loan.stop), region):
                return _said(
                    lab, Verdict.MUTATED_INPUT, "", "mutated", f"{loan.name} differs from what was passed in"
                )
        for loan, region in zip(outputs, before, strict=True):
            offset = first_change_outside(arena, loan, region)
            if offset is not None:
                return _said(
                    lab, Verdict.OUT_OF_BOUNDS, "WRITE", "out of bounds write", _outside(loan, offset)
                )
        got = [arena.view(loan.tensor).clone() for loan in outputs]
        if expected is None:
            expected = compare.expect(exercise, case, values)
            invalid = _invalid(session, exercise, case, expected, values)
            if invalid:
                return invalid
            masks = [untouched(arena, loan, region) for loan, region in zip(outputs, before, strict=True)]
            finding, used = compare.examine(exercise, case, expected, got, masks)
            if finding:
                return _wrong(session, lab, exercise, case, finding, values, expected, got, seat)
            first = got
        elif not all(map(same_bits, first, got)):
            return _said(
                lab,
                Verdict.WRONG,
                "NONDETERMINISTIC",
                "nondeterministic",
                "two runs on the same inputs differ",
            )
    return Outcome(Verdict.PASS, share=1.0, used=used)


def _finish(session: Session) -> None:
    """The judge's writes must have landed before another process is told to read them."""
    if session.device != "cpu":
        torch.cuda.synchronize()


def _invalid(session, exercise, case, expected, values) -> Outcome | None:
    """A case that lets a worthless answer pass is the grader's fault, and no student's loss."""
    other = compare.expect(exercise, case, draw(exercise, case, session.seed, session.device, call=1))
    accepted = compare.accepted_nulls(exercise, case, expected, values, other)
    if not accepted:
        return None
    return Outcome(
        Verdict.GRADER_FAULT, "INVALID_CASE", where=f"this case would accept {accepted[0]} as an answer"
    )


def _wrong(session, lab, exercise, case, finding, values, expected, got, seat) -> Outcome:
    k = exercise.outputs.index(finding.output)
    earlier = [
        compare.expect(exercise, case, draw(exercise, case, session.seed, session.device, call=1)).rounded[k]
    ]
    found = diagnose.diagnose(lab, exercise, case, finding, values, expected.reference[k], got[k], earlier)
    place = ", ".join(map(str, finding.index))
    where = f"{finding.output}[{place}]   yours {finding.got:.6g}   expected {finding.expected:.6g}"
    reason = "STALE" if found.sign == "stale" else finding.reason
    if found.sign == "not finite" and _reads_past_the_end(case, finding):
        return _said(lab, Verdict.OUT_OF_BOUNDS, "READ", "out of bounds read", where, found.pattern)
    return Outcome(
        Verdict.WRONG,
        reason,
        where=where,
        pattern=found.pattern,
        cause=found.cause,
        hint=found.hint,
        printed=seat.printed,
        used=finding.used,
    )


def _reads_past_the_end(case: Case, finding) -> bool:
    """NaN, not inf, from ordinary values: the only NaN there was lay in the guard bands."""
    ordinary = case.params.get("values", "normal") == "normal"
    return ordinary and finding.got != finding.got


def _said(lab: Lab, verdict: Verdict, reason: str, sign: str, where: str, pattern: str = "") -> Outcome:
    found = diagnose.cause_of(lab, sign)
    return Outcome(verdict, reason, where=where, pattern=pattern, cause=found.cause, hint=found.hint)


def _with_cause(lab: Lab, failed: Outcome) -> Outcome:
    if "out of resource" in failed.where:
        found = diagnose.cause_of(lab, "shared memory")
        return Outcome(**{**vars(failed), "cause": found.cause, "hint": found.hint})
    return failed


def _outside(loan: Loan, offset: int) -> str:
    """In words where outside its tensor an element was written."""
    if 0 <= offset < loan.tensor.span:
        return f"{loan.name}: an element between two rows was written, {offset} elements from the first"
    if offset < 0:
        return f"{loan.name}: {-offset} elements before its first one, memory was written"
    return f"{loan.name}: memory was written past its end; nearest at +{offset - loan.tensor.span} elements"

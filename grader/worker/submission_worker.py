"""Run one submitted file in a worker, which is replaced after it dies."""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Generic, NamedTuple, TypeVar

from grader.course.spec import Exercise, Reason, Verdict
from grader.course.submission import Submission
from grader.results.machine import FP_FUSION
from grader.results.outcome import Outcome
from grader.system import seeds
from grader.worker.client import LOOK_EVERY_S, Exchanger, Worker, WorkerGoneError
from grader.worker.error_report import ErrorReport
from grader.worker.failure import failure
from grader.worker.fork_server_client import KEPT_ENVIRONMENT
from grader.worker.gate import Gate, missing
from grader.worker.messages import (
    Audit,
    AuditReport,
    Edited,
    Go,
    Kept,
    Number,
    OneProgram,
    Picked,
    Place,
    Plan,
    Programs,
    Queued,
    Ran,
    Read,
    Returned,
    Setup,
)
from grader.worker.protocol import JsonObject, Kind, encode
from grader.worker.session import Session
from grader.worker.shared_memory import Arena, Buffer, Call
from grader.worker.waiting import explained
from grader.worker.witness.record import Followed, Witnessed

LOAD_LIMIT_S = 60.0
QUEUE_LIMIT_S = 2.0  # to queue the calls of a plan, which takes milliseconds; longer, and something waits
# For the GPU to run them, once the gate is open; or so many times what the last run with an open gate took.
GATED_LIMIT_S, SLOWER = 2.0, 4.0
LOOK_SELDOM_S = 2.0  # at workers that compile ahead: looking takes time from the judge, and they are many
T = TypeVar("T")


class Opened(NamedTuple, Generic[T]):
    """Microseconds from opening the gate until the judge held its sample, and the sample."""

    elapsed_us: float
    sample: T


class SubmissionWorker:
    """A worker that has imported one file and mapped an arena; it is replaced after it dies."""

    def __init__(
        self,
        session: Session,
        submission: Submission,
        arena: Arena,
        *,
        interpreted: bool = False,
        tuning: str = "chance",
        arch: int = 0,
        ahead: bool = False,
        trusted: bool = False,
        given: tuple[Path, ...] = (),
        parts: tuple[Submission, ...] = (),
    ):
        self.session, self.arena, self._trusted = session, arena, trusted
        self.folder = session.private_folder(submission.path.stem)
        self._submission, self._interpreted = submission, interpreted
        self._tuning, self._arch, self._ahead = tuning, arch, ahead
        self._given = given  # modules of the lab that the file may import
        self._parts = parts  # other files of the student that it imports
        self._worker: Worker | None = None
        self._is_loaded = False  # whether the worker has imported the file
        self.is_setting_up = False  # from `begin` until `set_up` has taken the answer
        self._plans = 0
        self.decoys = 0  # how many inputs were drawn that are not graded
        self._reply: JsonObject = {}
        self._ran = Ran()
        self._still = False
        self._gate: Gate | None = None
        self._took_s = 0.0  # by the last run of a plan, with its messages
        self.queued = 0  # the plan that waits at the gate; 0 for none
        self._never_loads: Outcome | None = None
        self._base: str | None = None  # a text of which the process keeps the module, for edits of it
        self._source_folder: Path | None = None  # with the file, where no worker can write
        self._kept, self._is_kept = "", False  # a text whose module the process keeps; is it the present one?
        self._kept_number = 0
        self._ready: dict[str, int] = {}  # plans of the text that is kept, by what they are
        self._edited: BinaryIO | None = None  # beside the file; opened once, which takes longer than a write

    def start(self) -> Outcome | None:
        """Make sure that a worker runs and has imported the file; return an outcome if that fails."""
        if self._never_loads:
            return self._never_loads
        failed = self.set_up()
        if failed or self._is_loaded:
            return failed
        self._is_loaded = True
        self._never_loads = self._ask(Kind.LOAD, {}, LOAD_LIMIT_S, loading=True)
        return self._never_loads

    def set_up(self) -> Outcome | None:
        """Make sure that a worker runs and is set up; return GRADER_FAULT if that fails.

        No line of the file has run in a new one: only `start` imports it.
        """
        failed = self.begin()
        if failed or not self.is_setting_up:
            return failed
        assert self._worker is not None
        self.is_setting_up = False
        failed = self._taken(Kind.SETUP, partial(self._worker.answer, LOAD_LIMIT_S))
        return self._not_set_up(failed.where) if failed else None

    def begin(self) -> Outcome | None:
        """Make sure that a worker runs, which sets itself up while this process does something else.

        It creates its CUDA context then: nothing is timed until `set_up` has returned. Returns GRADER_FAULT
        if the worker has ended at once. Does nothing for a file that cannot be imported.
        """
        if self._never_loads or self.is_running:
            return None
        # Into a folder that no worker can write to: an earlier worker could have left a link there.
        path = self._submission.path
        copy = self.session.private_folder(f"{path.stem}-source") / path.name
        copy.write_bytes(self._submission.data or b"")
        for file in self._given:
            shutil.copyfile(file, copy.parent / file.name)
        for part in self._parts:
            (copy.parent / part.name).write_bytes(part.data or b"")
        copy.parent.chmod(0o755)
        self._source_folder = copy.parent
        self._close_edited()
        on_cpu, handle = self.arena.device == "cpu", self.arena.handle
        environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        for name in ("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
            environment[name] = str(self.folder)
        # New in each run, and shared by the workers of one file, so that each kernel is compiled once.
        environment["TRITON_CACHE_DIR"] = str(self.session.cache(path))
        environment["TRITON_DEFAULT_FP_FUSION"] = str(int(FP_FUSION))
        if self._interpreted:
            environment["TRITON_INTERPRET"] = "1"
        write = (str(self.folder), environment["TRITON_CACHE_DIR"])
        confinement = self.session.confinement(path, self._interpreted, self._trusted)
        confinement = replace(confinement, write=write, read=(*confinement.read, str(copy.parent)))
        self._gate, self.queued = self._new_gate(), 0
        setup = Setup(
            folder=str(self.folder),
            file=str(copy),
            given=tuple(str(copy.parent / path.name) for path in self._given),
            parts=tuple(str(copy.parent / part.name) for part in self._parts),
            environment=environment,
            driver_cache=str(self.session.driver_cache),
            device=self.arena.device,
            arena_bytes=self.arena.size,
            handle=handle.hex() if isinstance(handle, bytes) else "",
            tuning=self._tuning,
            # Not the run's seed, from which inputs and poison are drawn, and nothing that follows from it.
            tuning_seed=seeds.for_a_worker(self.session.seed),
            arch=self._arch,
            gated=self._gate is not None,
            ahead=self._ahead,
            confinement=confinement,
        )
        if confinement.uid:
            for folder in write:
                os.chown(folder, confinement.uid, confinement.uid)
        parent = self.session.parent(self._interpreted)
        self._still = False
        # Only on a CPU: the import might initialize CUDA in the fork server, which could then not fork.
        operators = on_cpu and any(b"triton_op" in (one.data or b"") for one in self._files)
        memory = handle if isinstance(handle, int) else None
        pages = self._gate.descriptors if self._gate else ()
        look_every_s = LOOK_SELDOM_S if self._ahead else LOOK_EVERY_S
        self._worker = Worker(parent, memory, tuple(map(Path, write)), operators, pages, look_every_s)
        self._is_loaded, self.is_setting_up, self._base = False, True, None
        self._kept, self._is_kept = "", False
        self._ready.clear()
        try:
            self._worker.send(Kind.SETUP, encode(setup), LOAD_LIMIT_S)
        except WorkerGoneError as gone:
            return self._not_set_up(gone.why)
        return None

    @property
    def is_running(self) -> bool:
        """Whether a process of this worker runs; the file may not be imported yet."""
        return self._worker is not None and self._worker.alive

    def _not_set_up(self, why: str) -> Outcome:
        """End the worker, in which no line of the student's file has run: this is a fault of the grader."""
        assert self._worker is not None
        self.is_setting_up = False
        self._worker.end()
        fault = "the process for the file could not be set up"
        return Outcome(Verdict.GRADER_FAULT, where=f"{fault}: {why}", fault=fault)

    def _new_gate(self) -> Gate | None:
        """Return a gate for a new worker process; None on a CPU, and on a GPU that has none."""
        if self._gate:
            self._gate.close()
        if self.arena.device == "cpu":
            return None
        return None if missing(self.session) else Gate()

    @property
    def _files(self) -> tuple[Submission, ...]:
        """The student's files: the one that is graded, and those that it imports."""
        return (self._submission, *self._parts)

    def prepare(
        self,
        exercise: Exercise,
        calls: Sequence[Call],
        limit_s: float,
        function: str = "",
        named: Mapping[str, float] | None = None,
        allocates: bool = False,
        separate: bool = False,
        other_configs: bool = False,
        tunes: bool = False,
        configs: Mapping[str, str] = MappingProxyType({}),
        programs: Programs | None = None,
        only: OneProgram | None = None,
        kept: Kept | None = None,
        filled: bool = False,
    ) -> int | Outcome:
        """Send a list of calls, and numbers that all of them get by name; return the plan's number.

        If the function `allocates` its results, no output is passed, and what it returns is copied. If its
        gradients are `separate`, it is called once for each. With `other_configs` autotuned kernels take
        another config than in earlier calls, where they have one, and run once before if this `tunes` them;
        those in `configs`, by name, take the one with this text.
        `programs` change the grid of one launch; of a launch that has an `only` program no other one runs,
        and launches that are `kept` do not run either. If `filled`, tensors that host code makes hold NaN.
        """
        self._plans += 1
        numbers: dict[str, Number] = dict(named or {})
        if exercise.native and not function and calls:
            shapes = {buffer.name: buffer.tensor.shape for buffers in calls[0] for buffer in buffers}
            numbers["sizes"] = [int(size) for size in exercise.native.sizes(shapes)]
        symbol = exercise.native.symbol if exercise.native else exercise.name
        plan = Plan(
            plan=self._plans,
            function=function or symbol,
            differentiable=exercise.differentiable,
            allocates=allocates,
            separate=separate,
            other_configs=other_configs,
            tunes=tunes,
            configs=dict(configs),
            programs=programs,
            only=only,
            kept=kept,
            filled=filled,
            named=numbers,
            calls=tuple(
                (tuple(map(_place, inputs)), {buffer.name: _place(buffer) for buffer in outputs})
                for inputs, outputs in calls
            ),
        )
        known = json.dumps(encode(replace(plan, plan=0))) if self._is_kept else ""
        if known in self._ready:
            return self._ready[known]
        failed = self._ask(Kind.PREPARE, encode(plan), limit_s)
        if known and not failed:
            self._ready[known] = self._plans
        return failed or self._plans

    def go(
        self,
        plan: int,
        limit_s: float,
        exchanger: Exchanger | None = None,
        may_call: Iterable[str] = (),
        witnessed: bool = False,
        traced: bool = False,
        bounds: bool = False,
        most: int | None = None,
        products_idle: bool = False,
        selected: Mapping[str, int] = MappingProxyType({}),
        compared: tuple[int, int] = (0, 1),
        followed: Followed | None = None,
        parsed: bool = False,
        meanwhile: Callable[[], None] | None = None,
    ) -> Outcome | None:
        """Run a prepared plan, and call `meanwhile` while it runs; return an outcome if it failed.

        With an `exchanger` only kernels, and the torch operators in `may_call`, get what is graded. If
        `witnessed`, the interpreter watches loads and stores; if `bounds`, only whether they stay in bounds;
        if `traced`, where NaN and inf come from. With a `most`, what is watched fails after so many loads and
        stores. With `products_idle`, tl.dot adds nothing to its accumulator in the interpreter. Of a text
        that is kept, the expressions that are `selected` run; if none is, those of places are compared whose
        number leaves the rest `compared[0]` by `compared[1]`. Of a part of an input that is `followed`, the
        interpreter finds the way into an element of an output. If `parsed`, kernels are read alone.
        """
        asked = Go(
            plan,
            exchanger is not None,
            tuple(may_call),
            witnessed,
            traced,
            bounds,
            most,
            products_idle,
            dict(selected),
            compared,
            followed,
            parsed,
        )
        began = time.monotonic()
        failed = self._ask(Kind.GO, encode(asked), limit_s, exchanger=exchanger, meanwhile=meanwhile)
        self._took_s = time.monotonic() - began
        return failed

    def edit(self, text: str, limit_s: float, base: str | None = None) -> Outcome | None:
        """Put another text in place of the file; return an outcome if that fails.

        If it differs from `base` in one kernel alone, only that kernel is read. It holds until the process
        ends, and earlier plans are gone. For a worker that looks for the cause of a mistake; what such a file
        computes earns nothing.
        """
        if base is not None and self._base != base:
            self._edit(base, limit_s, is_base=True)
            failed = self.start()
            if failed:
                return failed
            self._base = base
        return self._edit(text, limit_s, is_near=base is not None)

    def keep(self, text: str, limit_s: float) -> Outcome | None:
        """Put a text in place of the file whose module the process keeps; return an outcome if that fails.

        It has other expressions beside its own: see `go`. When it is asked for again nothing is read.
        """
        if self._is_kept and self._kept == text:
            return None
        if self._kept != text:
            self._kept_number += 1
        failed = self._edit("" if self._kept == text else text, limit_s, kept=self._kept_number)
        self._kept, self._is_kept = ("", False) if failed else (text, True)
        return failed

    def has_base(self, base: str) -> bool:
        """Return whether the process that runs has read this text as the base of others."""
        return self._base == base

    def _edit(
        self, text: str, limit_s: float, is_base: bool = False, is_near: bool = False, kept: int = 0
    ) -> Outcome | None:
        self._is_kept = False
        self._ready.clear()
        if self._edited is None:
            assert self._source_folder is not None
            self._edited = open(self._source_folder / "edited.py", "wb", buffering=0)  # noqa: SIM115 - lives with self
        data = text.encode()
        self._edited.seek(0)
        self._edited.truncate()
        self._edited.write(data)
        return self._ask(Kind.EDIT, encode(Edited(self._edited.name, is_base, is_near, kept)), limit_s)

    @property
    def is_gated(self) -> bool:
        """Whether calls can be queued behind a gate: on a GPU that has one, once the worker has started."""
        return self._gate is not None

    def queue(self, plan: int, limit_s: float) -> Outcome | None:
        """Queue a prepared plan behind the shut gate, and stop the worker's processes until it is opened.

        The plan has run before, so that nothing is left to compile or to allocate. If the worker waits for
        the GPU all the same, the gate is opened, the plan runs once more, and is queued again. Returns an
        outcome if it waits again, or if a call fails. Without a gate the plan runs when it is opened.
        """
        if self._gate is None:
            self.queued = plan
            return None
        for again in (False, True):
            stacks: list[str] = []
            failed = self._queue(plan, limit_s, stacks)
            if failed or not stacks:
                return failed
            failed = self._ask(Kind.FINISH, {}, limit_s) or (None if again else self.go(plan, limit_s))
            if failed:
                return failed
        texts = {one.name: (one.data or b"").decode(errors="replace") for one in self._files}
        return explained(stacks[0], texts)

    def _queue(self, plan: int, limit_s: float, stacks: list[str]) -> Outcome | None:
        """Queue a plan; if it waits at the gate for too long, open it and append its stacks."""
        worker, gate = self._worker, self._gate
        assert worker is not None
        assert gate is not None
        ticket = gate.next_ticket()

        def release() -> None:
            stacks.append(worker.stacks())
            gate.open()

        payload = encode(Queued(plan, ticket, not self._trusted))
        failed = self._ask(Kind.QUEUE, payload, limit_s, late=(QUEUE_LIMIT_S, release))
        if failed:
            gate.open()
        elif not stacks:
            self.hold(still=True)
            self.queued = plan
        return failed

    def open(self, sample: Callable[[], T], limit_s: float) -> Opened[T] | Outcome:
        """Open the gate for the queued plan; return how long it took until `sample` had been taken.

        `sample` queues copies on the judge's stream. The worker's processes stay stopped until then. The
        inputs that are graded must have been written. Returns an outcome if the plan does not finish.
        """
        plan, self.queued, gate = self.queued, 0, self._gate
        assert plan, "nothing was queued"
        if gate is None:
            start = time.perf_counter_ns()
            failed = self.go(plan, limit_s)
            return failed or Opened((time.perf_counter_ns() - start) / 1e3, sample())
        import torch

        if gate.is_done:
            words = "the file's process said that its work was done before the gate was opened"
            self.close()
            return Outcome(Verdict.CRASHED, Reason.PROTOCOL, where=words)
        event = torch.cuda.Event()
        sample()  # loads its kernels: with the stream waiting, loading them would wait as well
        event.record()
        gate.wait_for_done()
        taken = sample()
        event.record()
        gc.disable()  # a collection inside the clock would cost milliseconds, by chance
        start = time.perf_counter_ns()
        gate.open()
        most_s = min(limit_s, max(GATED_LIMIT_S, SLOWER * self._took_s))
        limit_ns = start + int(1e9 * most_s)
        while not event.query() and time.perf_counter_ns() < limit_ns:
            pass
        elapsed_us = (time.perf_counter_ns() - start) / 1e3
        gc.enable()
        if event.query():
            return self.ran_on() or Opened(elapsed_us, taken)
        gate.give_up()
        torch.cuda.synchronize()
        # The worker says why: an error of the GPU, or a kernel that does not end.
        words = f"stopped at the time limit of {most_s:.3g} s"
        return self._ask(Kind.FINISH, {}, limit_s) or Outcome(Verdict.TIMEOUT, where=words)

    def ran_on(self) -> Outcome | None:
        """Return an outcome, and end the worker, if its process has run while it was held."""
        if not (self._worker and self._worker.alive and self._worker.has_run):
            return None
        self.close()
        words = "the file's process ran on although it had been stopped, as it is while it is timed"
        return Outcome(Verdict.CRASHED, Reason.PROTOCOL, where=words)

    def finish(self, limit_s: float) -> Outcome | None:
        """Wait until the GPU has run all that was queued; return an outcome if a call failed there."""
        return self._ask(Kind.FINISH, {}, limit_s) if self._gate else None

    def picked(self, limit_s: float) -> dict[str, str]:
        """Return the last config of each autotuned kernel, as the worker reports it; shown, never scored."""
        failed = self._ask(Kind.PICKED, {}, limit_s)
        return {} if failed else dict(Picked.claimed(self._reply).configs)

    def watch(
        self, plan: int, limit_s: float, kernels_counted: bool = False, may_call: Iterable[str] = ()
    ) -> AuditReport | Outcome:
        """Return what a prepared plan does besides its kernels, as the worker reports it.

        Kernels of the operators in `may_call` do not count.
        """
        asked = Audit(plan, kernels_counted, tuple(may_call))
        failed = self._ask(Kind.AUDIT, encode(asked), limit_s)
        return failed or AuditReport.claimed(self._reply)

    def _ask(
        self,
        kind: Kind,
        payload: JsonObject,
        limit_s: float,
        loading: bool = False,
        exchanger: Exchanger | None = None,
        late: tuple[float, Callable[[], None]] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Outcome | None:
        assert self._worker is not None
        if self.queued and self._gate:  # given up, after an outcome of the other side
            self._gate.open()
            self.queued = 0
        if self._still:
            self.hold(still=False)
        ask = partial(self._worker.ask, kind, payload, limit_s, exchanger, late, meanwhile)
        return self._taken(kind, ask, loading)

    def _taken(
        self, kind: Kind, answered: Callable[[], tuple[Kind, JsonObject]], loading: bool = False
    ) -> Outcome | None:
        """Take the answer to a frame; return an outcome if it failed."""
        assert self._worker is not None
        try:
            answer, reply = answered()
        except WorkerGoneError as gone:
            return Outcome(gone.verdict, gone.reason, where=gone.why, printed=self._worker.printed)
        if answer is Kind.FAILED:
            report = ErrorReport.claimed(reply)
            outcome = failure(report, loading)
            if loading or (outcome.verdict is Verdict.CRASHED and report.category == "illegal access"):
                self._worker.end()  # its CUDA context, or its module, cannot be used any more
            return outcome
        self._reply = reply
        if kind in (Kind.GO, Kind.QUEUE):
            self._ran = Ran.claimed(reply)
        return None

    def hold(self, still: bool) -> None:
        """Stop the worker's processes while another worker is timed; the next frame continues them."""
        if self._worker and self._worker.alive:
            self._worker.hold(still)
            self._still = still

    @property
    def computed(self) -> tuple[str, ...]:
        """Return the torch operators that computed in the last call, as the worker reports them."""
        return self._ran.operators

    @property
    def launched(self) -> Mapping[str, int]:
        """Return the kernels of the last call with their work of tl.dot, as the worker reports them."""
        return self._ran.launched

    @property
    def alternatives(self) -> Mapping[str, Sequence[int]]:
        """What the last run has found of other expressions: see `grader.judge.repair.effects`."""
        return self._ran.alternatives

    @property
    def witnessed(self) -> Witnessed:
        """Return what the interpreter saw of the last call's loads and stores, if it was asked to watch."""
        return self._ran.witnessed

    @property
    def computed_at(self) -> tuple[Read, ...]:
        """Return where torch operators computed in the last call, as the worker reports it."""
        return self._ran.computed

    @property
    def reads(self) -> tuple[Read, ...]:
        """Return where host code read data in the last call, as the worker reports it."""
        return self._ran.reads

    @property
    def returned(self) -> tuple[Returned, ...] | None:
        """Return what the function returned in the last call, as the worker reports it; None if unknown."""
        return self._ran.returned

    @property
    def text(self) -> str:
        """Return the text of the file; "" if it is not text."""
        return self._submission.text

    @property
    def printed(self) -> str:
        """Return what the student's code has printed so far."""
        return self._worker.printed if self._worker else ""

    def kill(self) -> None:
        """Kill the worker, and do not wait for its end, as `close` does.

        If another thread waits for its answer, that is an outcome then.
        """
        if self._worker:
            self._worker.kill()

    def close(self) -> None:
        """End the worker, also one that is still setting itself up."""
        self.is_setting_up = False
        self._close_edited()
        if self._worker:
            self._worker.end()
        if self._gate:
            self._gate.close()
            self._gate = None

    def _close_edited(self) -> None:
        if self._edited:
            self._edited.close()
            self._edited = None


def _place(buffer: Buffer) -> Place:
    tensor = buffer.tensor
    return tensor.offset, tensor.shape, tensor.strides, tensor.dtype


def close_all(workers: Iterable[SubmissionWorker]) -> None:
    """End several workers; all are killed first, because one that has used a GPU takes a while to end."""
    every = [*workers]
    for worker in every:
        worker.kill()
    for worker in every:
        worker.close()

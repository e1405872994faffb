"""A place for one file: the worker that has imported it, asked frame by frame, replaced after it dies."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from grader.inputs import Loan
from grader.lending import Arena
from grader.outcome import Outcome, failure, one_line
from grader.parent import KEPT_ENVIRONMENT
from grader.protocol import Kind
from grader.sandbox import Worker, WorkerGoneError
from grader.session import Session
from grader.spec import Exercise, Verdict

LOAD_LIMIT_S = 60.0


class Seat:
    """A place for one file: a worker that has imported it and mapped an arena, replaced after it dies."""

    def __init__(
        self,
        session: Session,
        file: Path,
        arena: Arena,
        *,
        interpreted=False,
        tuning="chance",
        arch=0,
        trusted=False,
        given=(),
    ):
        self.session, self.arena, self._trusted = session, arena, trusted
        self.folder = session.private_folder(file.stem)
        self._file, self._interpreted, self._tuning, self._arch = file, interpreted, tuning, arch
        self._given: tuple[Path, ...] = given  # modules of the lab that the file may import
        self._worker: Worker | None = None
        self._plans = 0
        self._reply: dict = {}
        self._still = False
        self._never_loads: Outcome | None = None

    def start(self) -> Outcome | None:
        """Have a living worker with the file imported; an outcome where that fails."""
        if self._never_loads or (self._worker and self._worker.alive):
            return self._never_loads
        # Into a folder that no worker can write to: one before could have left a link in its place.
        copy = self.session.private_folder(f"{self._file.stem}-source") / self._file.name
        for file in (self._file, *self._given):
            shutil.copyfile(file, copy.parent / file.name)
        copy.parent.chmod(0o755)
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
            "given": [str(copy.parent / path.name) for path in self._given],
            "environment": environment,
            "device": self.arena.device,
            "arena_bytes": self.arena.size,
            "handle": "" if on_cpu else self.arena.handle.hex(),
            "tuning": self._tuning,
            # Of the run's own seed, nothing may reach the worker: inputs and poison come from it.
            "seed": int.from_bytes(
                hashlib.sha256(f"{self.session.seed}/tuning".encode()).digest()[:4], "big"
            ),
            "arch": self._arch,
        }
        confinement = self.session.confinement(self._file, self._interpreted, self._trusted)
        confinement["write"] = [str(self.folder), environment["TRITON_CACHE_DIR"]]
        confinement["read"].append(str(copy.parent))
        setup["confinement"] = confinement
        if confinement["uid"]:
            for path in confinement["write"]:
                os.chown(path, confinement["uid"], confinement["uid"])
        parent = self.session.parent(self._interpreted)
        self._still = False
        scratch = tuple(map(Path, confinement["write"]))
        # Where there is a GPU the import might touch it, and a parent that has cannot fork workers for it.
        operators = on_cpu and b"triton_op" in copy.read_bytes()
        self._worker = Worker(parent, self.arena.handle if on_cpu else None, scratch, operators)
        failed = self._ask(Kind.SETUP, setup, LOAD_LIMIT_S)
        if failed:  # before any line of the student's: never their fault
            self._worker.end()
            return Outcome(Verdict.GRADER_FAULT, where=f"the worker could not be set up: {failed.where}")
        self._never_loads = self._ask(Kind.LOAD, {}, LOAD_LIMIT_S, loading=True)
        return self._never_loads

    def prepare(
        self, exercise: Exercise, calls, limit_s: float, function: str = "", named: Mapping | None = None
    ) -> int | Outcome:
        """Announce a list of calls, each (inputs, outputs) as loans, and numbers that all of them get by
        name; returns the plan's number.
        """
        self._plans += 1
        named = dict(named or {})
        if exercise.native and not function and calls:
            shapes = {loan.name: loan.tensor.shape for loans in calls[0] for loan in loans}
            named["sizes"] = [int(size) for size in exercise.native.sizes(shapes)]
        symbol = exercise.native.symbol if exercise.native else exercise.name
        payload = {
            "plan": self._plans,
            "function": function or symbol,
            "differentiable": exercise.differentiable,
            "named": named,
            "calls": [
                ([_place(loan) for loan in inputs], {loan.name: _place(loan) for loan in outputs})
                for inputs, outputs in calls
            ],
        }
        failed = self._ask(Kind.PREPARE, payload, limit_s)
        return failed or self._plans

    def wake(self, limit_s: float) -> Outcome | None:
        """Have the worker look out for the next frame, so that scheduling it costs no side time."""
        return self._ask(Kind.WAKE, {}, limit_s, spin=True)

    def go(self, plan: int, limit_s: float, spin: bool = False) -> Outcome | None:
        """Run a prepared plan to its end; an outcome where it failed. `spin` where time is taken."""
        return self._ask(Kind.GO, {"plan": plan}, limit_s, spin=spin)

    def picked(self, limit_s: float) -> dict[str, str]:
        """What each autotuned kernel ran with last, as the worker tells it; shown, never scored."""
        told = {} if self._ask(Kind.PICKED, {}, limit_s) else self._reply.get("picked")
        pairs = told.items() if isinstance(told, dict) else ()
        return {one_line(str(name)): one_line(str(config)) for name, config in pairs}

    def watch(self, plan: int, limit_s: float, census: bool = False, may_call=()) -> dict | Outcome:
        """What a prepared plan does besides its kernels (see witness), as lists of names from the worker;
        kernels of the operators that it `may_call` are not counted.
        """
        asked = {"plan": plan, "census": census, "may_call": list(may_call)}
        failed = self._ask(Kind.WITNESS, asked, limit_s)
        if failed:
            return failed
        names = {
            key: [one_line(str(name)) for name in value]
            for key, value in self._reply.items()
            if isinstance(value, list)
        }
        return {"operators": [], "foreign": [], "strangers": [], "uncounted": []} | names

    def _ask(self, kind: Kind, payload: dict, limit_s: float, loading=False, spin=False) -> Outcome | None:
        self.claimed_us = None
        if self._still:
            self.hold(still=False)
        try:
            answer, reply = self._worker.ask(kind, payload, limit_s, spin)
        except WorkerGoneError as gone:
            return Outcome(gone.verdict, gone.reason, where=gone.why, printed=self._worker.printed)
        if answer is Kind.FAILED:
            outcome = failure(reply, loading)
            if loading or (outcome.verdict is Verdict.CRASHED and reply.get("category") == "illegal access"):
                self._worker.end()  # its CUDA context, or its module, is of no further use
            return outcome
        self._reply = reply
        claim = reply.get("claimed_us", 0.0)
        if not isinstance(claim, float) or not 0.0 <= claim < 1e12:
            self._worker.end()
            return Outcome(Verdict.CRASHED, "PROTOCOL", where="it claimed a time that is none")
        self.claimed_us = claim
        return None

    def hold(self, still: bool) -> None:
        """Stop the worker's processes while the other side is timed; the next frame lets them run on."""
        if self._worker and self._worker.alive:
            self._worker.hold(still)
            self._still = still

    @property
    def computed(self) -> list[str]:
        """Torch operators that computed something in the last call, as the worker tells it."""
        told = self._reply.get("operators")
        return [one_line(str(name)) for name in told] if isinstance(told, list) else []

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

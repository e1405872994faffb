"""One grading run: answers questions one after the other and keeps what they share."""

from __future__ import annotations

import math
import shutil
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grader import catalog, hidden, native, policy
from grader.gpu import Gpu
from grader.intake import listed, read_file
from grader.outcome import Outcome, one_line
from grader.questions import CODEGEN, COMPILES, CORRECTNESS, DOCUMENT, SPEED, Question
from grader.session import Session
from grader.spec import Case, Exercise, Verdict
from grader.todos import open_todos

if TYPE_CHECKING:
    # Both lead to torch, which a run over untouched skeletons does not need.
    from grader.codegen import KernelFacts
    from grader.seat import Seat

TIERS = ("auto", "cpu", "codegen", "gpu")
ARCHS = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)  # what Triton's compiler knows
REFERENCE = "reference"  # as a source: the baselines of lab.py take the student's seat, and should read 100 %
CODEGEN_LIMIT_S = 180.0
SHOWN_WRONG = 8  # of what is wrong with a document
SET_SHARE = 6  # a buffer set takes at most this part of the free memory


class Run:
    """Grades questions against the files below `source`. Close it: it holds processes and memory.

    `screened` off leaves the static screen out: what it would refuse is then run, and must fail there. A
    `session` that was passed in is used and left open.
    """

    def __init__(
        self,
        source: Path | str,
        tier: str,
        seed: int,
        gpu: Gpu | None,
        arch: int = 90,
        *,
        screened: bool = True,
        confined: bool = True,
        session: Session | None = None,
    ):
        if tier not in TIERS or tier == "auto":
            raise ValueError(f"tier is {tier!r}, not one of {', '.join(TIERS[1:])}")
        self.source, self.tier, self.seed, self.gpu, self.arch = source, tier, seed, gpu, arch
        self.screened, self._confined = screened, confined
        self._session, self._borrowed = session, session is not None
        self._arenas: dict[str, object] = {}
        self._seats: dict[tuple, object] = {}
        self._kernels: dict[tuple, Future] = {}
        self._compiler = ThreadPoolExecutor(1)  # compiles ahead, while the first cases run
        self._compiling: tuple[Path, Seat] | None = (
            None  # the file and worker of the compiling thread, its alone
        )
        self._failed: dict[tuple, Outcome] = {}
        self._checked: dict[tuple, Outcome | None] = {}

    def warm(self, asked: Sequence[Question]) -> None:
        """Start the warm parents that these questions will need, so that their imports overlap with the
        judge's.
        """
        kinds = {q.kind for q in asked if q.kind != DOCUMENT and self.ungradable(q) is None}
        if CORRECTNESS in kinds and self.tier == "cpu":
            self.session.parent(interpreted=True)
        if CODEGEN in kinds or (self.tier == "gpu" and kinds):
            self.session.parent(interpreted=False)
        for question in asked:
            key = (question.entry.folder, question.exercise.name)
            if question.kind == CODEGEN and key not in self._kernels and self.ungradable(question) is None:
                self._kernels[key] = self._compiler.submit(self._compile, question)

    @property
    def session(self) -> Session:
        """The session, begun at the first use: a run without anything to execute starts no process."""
        if self._session is None:
            self._session = Session("cuda" if self.tier == "gpu" else "cpu", self.seed, self._confined)
        return self._session

    @property
    def assurance(self) -> str:
        """How far this run's workers were confined, in words; L1 also where no worker was needed."""
        found = self._session.assurance if self._session else None
        words = [found.words if found else "none needed: nothing was run"]
        if not self.screened:
            words.append("static screen off")
        if self._session and self._session.uncounted:
            words.append(f"kernels were not counted: {self._session.uncounted[0]}")
        return "; ".join(words)

    def file(self, question: Question) -> Path:
        """The file that is graded for a question."""
        if self.source == REFERENCE:
            return question.entry.lab_file
        return question.entry.submission(Path(self.source), question.exercise)

    def answer(self, question: Question) -> Outcome:
        """The outcome of one question; whatever goes wrong in the grader itself is a GRADER_FAULT."""
        key = (question.entry.folder, question.exercise.name)
        whole = False  # whether the outcome is of the file as a whole, and not of this case
        try:
            outcome = self.ungradable(question)
            whole = outcome is not None and outcome.verdict is not Verdict.NOT_GRADED
            outcome = outcome or self._blocked(question) or self._ask(question)
        except Exception as error:  # a fault of ours must cost no student points, and must name itself
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            outcome = Outcome(Verdict.GRADER_FAULT, where=words)
        stopped = outcome.verdict is Verdict.NOT_STARTED and outcome.where and question.kind != DOCUMENT
        if stopped and self.file(question).is_file():
            todos = open_todos(self.file(question).read_text("utf-8", errors="replace"))
            if todos:  # a placeholder in a kernel, met only when it ran
                outcome = replace(outcome, where="", frames=(), figures={"todos": listed(todos)})
        if question.kind == CORRECTNESS and outcome.verdict not in (
            Verdict.PASS,
            Verdict.NOT_GRADED,
            Verdict.GRADER_FAULT,
        ):
            self._failed.setdefault(key, outcome)
        hide = question.case is not None and question.case.label and not whole
        return hidden.told(outcome) if hide else outcome

    def _ask(self, question: Question) -> Outcome:
        ask = {CORRECTNESS: self._correctness, CODEGEN: self._codegen, SPEED: self._speed}
        return ask.get(question.kind, self._document)(question)

    def _document(self, question: Question) -> Outcome:
        """What a check finds wrong with a document; it is read here, as nothing of it is run."""
        _, check = question.exercise.checks[question.name]
        try:
            wrong = [one_line(words) for words in check(catalog.capstone_in(Path(self.source)))]
        except FileNotFoundError as missing:
            # Whoever has no GPU could not have made it.
            verdict = Verdict.NOT_STARTED if self.tier == "gpu" else Verdict.NOT_GRADED
            return Outcome(verdict, where=one_line(str(missing)))
        except ValueError as unreadable:
            wrong = [one_line(str(unreadable))]
        if wrong:
            more = f"{len(wrong) - SHOWN_WRONG} more" if len(wrong) > SHOWN_WRONG else ""
            return Outcome(Verdict.WRONG, where="\n".join(filter(None, [*wrong[:SHOWN_WRONG], more])))
        return Outcome(Verdict.PASS, share=1.0)

    def _blocked(self, question: Question) -> Outcome | None:
        """Code and speed of a function are looked at once its cases are right."""
        first = self._failed.get((question.entry.folder, question.exercise.name))
        if question.kind == CORRECTNESS or first is None:
            return None
        words = f"not looked at until every case of {question.exercise.name} is right"
        return Outcome(first.verdict, first.reason, where=words)

    def ungradable(self, question: Question) -> Outcome | None:
        """What can be said without running anything: no file, no function, open TODOs, or nothing to run it
        on.
        """
        key = (question.entry.folder, question.exercise.name)
        if question.kind == DOCUMENT:
            reference = Outcome(Verdict.NOT_GRADED, where="the reference is only timed")
            return reference if self.source == REFERENCE else None
        if self.source != REFERENCE:
            if key not in self._checked:
                self._checked[key] = read_file(self.file(question), question.exercise) or self._screen(
                    question
                )
            if self._checked[key]:
                return self._checked[key]
        elif question.kind != SPEED:
            return Outcome(Verdict.NOT_GRADED, where="the reference is only timed")
        if question.kind == CODEGEN:
            known = ", ".join(f"sm_{arch}" for arch in ARCHS)
            words = f"sm_{self.arch} is not among what this grader compiles for: {known}"
            return None if self.arch in ARCHS else Outcome(Verdict.NOT_GRADED, where=words)
        if self.tier == "codegen":
            return Outcome(Verdict.NOT_GRADED, where="this tier only compiles")
        if self.tier == "cpu" and question.kind == SPEED:
            return Outcome(Verdict.NOT_GRADED, where="needs a GPU")
        if self.tier == "cpu" and question.exercise.native:
            return Outcome(Verdict.NOT_GRADED, where="needs a GPU: CUDA C++ runs on nothing else")
        if self.tier == "cpu" and question.case.needs_gpu:
            why = (
                "bf16 is wrong in the interpreter"
                if question.case.dtype == "bf16"
                else "too large for the interpreter"
            )
            return Outcome(Verdict.NOT_GRADED, where=f"needs a GPU: {why}")
        return None

    def _screen(self, question: Question) -> Outcome | None:
        if not self.screened:
            return None
        source = self.file(question).read_text("utf-8-sig")
        if question.exercise.native:
            return _screened(source, question)
        return policy.screen(source, question.entry.lab, question.exercise)

    def _correctness(self, question: Question) -> Outcome:
        from grader.judge import grade_case

        seat = self._seat("correctness", question, self._arena("small"), interpreted=self.tier == "cpu")
        try:
            count = self.tier == "gpu" and question.case is _largest(question.exercise)
            outcome = grade_case(seat, question.entry.lab, question.exercise, question.case, count)
        except Exception:
            seat.close()  # whatever a worker did to bring this about, the next case does not inherit it
            raise
        if outcome.verdict is not Verdict.PASS and not outcome.printed:
            outcome = replace(outcome, printed=seat.printed)
        if outcome.verdict not in (Verdict.PASS, Verdict.WRONG):
            seat.close()  # after anything out of the ordinary the next case gets a fresh worker
        return outcome

    def _codegen(self, question: Question) -> Outcome:
        from grader import codegen

        kernels = self.kernels(question)
        if isinstance(kernels, Outcome):
            return kernels
        if question.name == COMPILES:
            count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
            passed, words = bool(kernels), f"{count} compiled for sm_{self.arch}"
        else:
            passed, words = codegen.check(question.name, kernels)
        return codegen.outcome(question.entry.lab, question.name, passed, words, kernels)

    def kernels(self, question: Question) -> list[KernelFacts] | Outcome:
        """Facts of the kernels that the exercise's call launches, or the outcome of a call that failed."""
        key = (question.entry.folder, question.exercise.name)
        if key not in self._kernels:
            self._kernels[key] = self._compiler.submit(self._compile, question)
        return self._kernels[key].result()

    def _compile(self, question: Question) -> list[KernelFacts] | Outcome:
        from grader import codegen
        from grader.inputs import Placer
        from grader.judge import lay_out
        from grader.seat import Seat
        from grader.shapes import shapes_of

        file = self.file(question)
        if self._compiling is None or self._compiling[0] != file:
            if self._compiling:
                self._compiling[1].close()
            arena = self._arena("host")
            self._compiling = (
                file,
                Seat(self.session, file, arena, tuning="offline", arch=self.arch, given=question.entry.given),
            )
        seat = self._compiling[1]
        failed = seat.start()
        if failed:
            return failed
        for old in seat.folder.glob("kernel-*"):
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink()
        exercise = question.exercise
        if not exercise.native:
            shapes = shapes_of(exercise, question.case)
            calls = [lay_out(exercise, question.case, Placer(), shapes)]
            named = {name: shapes[name] for name in exercise.numbers if name in shapes}
            plan = seat.prepare(exercise, calls, CODEGEN_LIMIT_S, named=named)
            failed = plan if isinstance(plan, Outcome) else seat.go(plan, CODEGEN_LIMIT_S)
            if failed:
                return failed
        try:
            if exercise.native:
                arch = native.arch_name(*divmod(self.arch, 10))
                return codegen.read_native(native.library(file, self.session.cache(file), arch), self.arch)
            return codegen.read_kernels(seat.folder, self.arch)
        except codegen.WorkerFileError as error:
            return Outcome(Verdict.CRASHED, "PROTOCOL", where=one_line(str(error)))

    def _speed(self, question: Question) -> Outcome:
        from grader.duel import Duel

        wait(self._kernels.values())  # a busy thread of this process would disturb the clock
        arena = self._arena("sets")
        student = self._seat("speed", question, arena, tuning="full", trusted=self.source == REFERENCE)
        reference = self._seat(
            "reference", question, arena, tuning="full", file=question.entry.lab_file, trusted=True
        )
        function = question.exercise.speed.baselines[0].function.__name__ if self.source == REFERENCE else ""
        duel = Duel(
            question.entry.lab, question.exercise, question.case, student, reference, self.gpu, function
        )
        outcome = duel.run()
        if not outcome.figures:
            student.close()  # it died or misbehaved; the next shape gets a fresh worker
        return outcome

    def _arena(self, name: str):
        from grader.lending import Arena

        if name not in self._arenas:
            if name == "sets":
                import torch

                free, _ = torch.cuda.mem_get_info()
                self._arenas[name] = Arena.create("cuda", 2 * free // SET_SHARE)
            else:
                device = "cpu" if name == "host" else self.session.device
                self._arenas[name] = Arena.create(device, ARENA_BYTES[device])
        return self._arenas[name]

    def _seat(self, purpose: str, question: Question, arena, file: Path | None = None, **options):
        from grader.seat import Seat

        file, lab = file or self.file(question), question.entry.folder
        if (purpose, lab, file) not in self._seats:
            # One lab at a time: workers of the lab before give back their memory.
            for key in [key for key in self._seats if key[1] != lab]:
                self._seats.pop(key).close()
            given = question.entry.given
            self._seats[purpose, lab, file] = Seat(self.session, file, arena, given=given, **options)
        return self._seats[purpose, lab, file]

    def close(self) -> None:
        """End every process and give back what the run holds."""
        self._compiler.shutdown(wait=False, cancel_futures=True)
        if self._compiling:
            self._compiling[1].close()
        self._compiler.shutdown()
        for seat in self._seats.values():
            seat.close()
        for arena in self._arenas.values():
            arena.close()
        if (
            "sets" in self._arenas
        ):  # what timing held beside it is kept by torch for whoever comes next: nobody
            import torch

            torch.cuda.empty_cache()
        if self._session and not self._borrowed:
            self._session.close()


ARENA_BYTES = {"cpu": 8 << 30, "cuda": 1 << 30}  # memory of a CPU arena is taken only where it is touched


def _screened(source: str, question: Question) -> Outcome | None:
    """POLICY with the line of a CUDA C++ file that brings in what is not on the list; None without one."""
    given = [*question.entry.lab.headers, *(f"../{name}" for name in question.entry.lab.headers)]
    for line, words in native.unwanted(source, given):
        return Outcome(Verdict.POLICY, where=f"line {line}: {one_line(words)}")
    return None


def _largest(exercise: Exercise) -> Case:
    """The case with the most elements, or nearly: its sizes multiplied."""
    return max(
        exercise.cases, key=lambda one: math.prod(n for n in one.params.values() if isinstance(n, int))
    )

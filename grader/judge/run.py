"""One grading run: grade items one after the other and keep what they share."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from grader.codegen import nvcc
from grader.course import catalog
from grader.course.items import CODEGEN, COMPILES, CORRECTNESS, SPEED, CaseItem, DocumentItem, Item
from grader.course.parts import Part, parts_of
from grader.course.spec import WRONG_RESULTS, Case, Exercise, Lab, Reason, Verdict
from grader.course.submission import MOST_BYTES, Submission
from grader.course.tiers import DEFAULT_ARCH, TIERS
from grader.course.todo_checks import checks_of
from grader.judge.beside import FEWEST, Beside
from grader.judge.concealed import concealed
from grader.results.findings import Blocked, Frame
from grader.results.outcome import Outcome
from grader.screen.file_check import check, check_part, listed
from grader.screen.policy import screen_part
from grader.screen.screen import screen
from grader.system.gpu import Gpu
from grader.system.text import one_line
from grader.worker.session import LEAN, Session

if TYPE_CHECKING:
    # They import torch, which a run over untouched skeletons does not need.
    from grader.codegen.kernel_facts import CompiledKernel
    from grader.judge.codegen_checks import Verified
    from grader.judge.compile_ahead import CompileAhead
    from grader.judge.timed_workers import TimedWorkers
    from grader.worker.fork_server_client import ForkServer
    from grader.worker.shared_memory import Arena
    from grader.worker.submission_worker import SubmissionWorker

ARCHS = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)  # supported by Triton's compiler
REFERENCE = "reference"  # as a source: times the baselines of lab.py as a submission, which should give 100 %
CODEGEN_LIMIT_S = 180.0
ASKED_LIMIT_S = 20.0  # where it is only asked if something compiles: a block of 2^20 elements takes minutes
FEWEST_OF_PRODUCTS = 0.5  # by which a result changes without tl.dot, by its norm, if that computes most of it
MOST_DOCUMENT_BYTES = 1 << 24  # of a document that is handed in beside kernels
# Largest size, and product of sizes, of a case that is run for a check of generated code alone: beyond them a
# kernel that adds up one product at a time takes minutes in the interpreter.
USUAL_SIZE, USUAL_PRODUCT = 1 << 10, 1 << 21
SHOWN_WRONG = 8  # problems of a document that are shown
INTERPRETER_LIMIT = (
    "this kernel compiles for a GPU, but Triton's interpreter, which runs kernels where there is no GPU, "
    "cannot run this line. Write it with other functions of triton.language, or run it on a GPU"
)
SET_SHARE = 6  # a buffer set takes at most one part in this many of the free memory
Key: TypeAlias = tuple[Path, str]  # an exercise: the lab's folder, and its name


class Run:
    """Grades items against the files below `source`. Close it, because it holds processes and memory.

    Without `screened` the static screen is skipped: what it would refuse is run, and must fail there. A
    `session` that is passed in is not closed.
    """

    def __init__(
        self,
        source: Path | str,
        tier: str,
        seed: int,
        gpu: Gpu | None,
        arch: int = DEFAULT_ARCH,
        *,
        screened: bool = True,
        confined: bool = True,
        session: Session | None = None,
    ):
        if tier not in TIERS:
            raise ValueError(f"unknown tier {tier!r}: choose one of {', '.join(TIERS)}")
        self.source, self.tier, self.seed, self.gpu, self.arch = source, tier, seed, gpu, arch
        self.screened, self._confined = screened, confined
        self._session, self._borrowed = session, session is not None
        self._arenas: dict[str, Arena] = {}
        self._workers: dict[tuple[str, Path, Path], SubmissionWorker] = {}  # by purpose, lab and file
        self._kernels: dict[Key, Future[list[CompiledKernel] | Outcome]] = {}
        self._compiler = ThreadPoolExecutor(1)  # compiles ahead, while the first cases run
        # File and worker of the compiling thread; no other thread uses them.
        self._compiling: tuple[Submission, SubmissionWorker] | None = None
        self._first_parent: ForkServer | None = None  # that other imports must not slow down
        self._ahead: CompileAhead | None = None
        self._compiled: dict[tuple[Path, str, tuple[Frame, ...]], bool] = {}  # by exercise and failing line
        self._failed: dict[Key, Outcome] = {}
        self._verified: dict[Key, Verified] = {}
        self._passed: set[tuple[Key, str]] = set()  # exercises with the sizes of cases that passed
        self._alone: dict[Key, str] = {}  # what finished TODOs of a file with open ones do
        self._checked: dict[Key, Outcome | None] = {}
        self._submissions: dict[Path, Submission] = {}
        self._parts: dict[Path, tuple[Part, ...]] = {}  # by a file, those that it imports
        self._following: dict[Path, CaseItem] = {}  # by a file, the first case of the file after it
        self._cases: dict[Path, list[CaseItem]] = {}  # by a file, those that can be graded without a GPU
        self._beside = Beside()
        self._timed: list[CaseItem] = []  # the timed shapes that were asked for
        self._timed_by: TimedWorkers | None = None
        self._last_graded: Key | None = None  # the exercise of the last case

    def warm(self, asked: Sequence[Item]) -> None:
        """Start the fork servers that these items need, so that their imports overlap with the judge's."""
        cases = [item for item in asked if isinstance(item, CaseItem)]
        lean = self.tier == "cpu" and LEAN in os.environ
        # As soon as one file can be graded: to look at all of them takes a while, too.
        if self.tier == "cpu" and not lean and self._asks_for(cases, CORRECTNESS):
            # The other one, which compiles, begins when this one has imported what it needs: the first case
            # waits for it, and on two cores each would slow the other down.
            self._first_parent = self.session.parent(interpreted=True)
        elif self._asks_for(cases, *((CODEGEN,) if self.tier != "gpu" else (CORRECTNESS, CODEGEN, SPEED))):
            # On a GPU workers of all files start at once, to compile. On a CPU those that need operators come
            # later: there `begin` asks for them.
            operators = self.tier == "gpu" and self._registers_operators(cases)
            self.session.parent(interpreted=False, operators=operators)
        if self.tier == "gpu" and self.gpu and self.source != REFERENCE and LEAN not in os.environ:
            ahead = [item for item in cases if not item.exercise.native and self.ungradable(item) is None]
            if ahead:
                self._start_ahead(self.gpu, ahead)
        if LEAN not in os.environ:
            graded = [item for item in cases if item.kind == CORRECTNESS and self.ungradable(item) is None]
            for item, other in itertools.pairwise(graded):
                path, same_lab = self.submission(item).path, item.entry is other.entry
                if same_lab and self.submission(other).path != path:
                    self._following.setdefault(path, other)
            for item in graded if self.tier == "cpu" and len(os.sched_getaffinity(0)) > 1 else ():
                self._cases.setdefault(self.submission(item).path, []).append(item)
        for item in cases:
            key = (item.entry.folder, item.exercise.name)
            if item.kind == CODEGEN and key not in self._kernels and self.ungradable(item) is None:
                self._kernels[key] = self._compiler.submit(self._compile, item)
        self._timed = [item for item in cases if item.kind == SPEED and self.ungradable(item) is None]
        if lean and self._kernels:
            self._compile_first()

    def _registers_operators(self, cases: Sequence[CaseItem]) -> bool:
        """Return whether the file of one of these items may register torch operators."""
        return any(b"triton_op" in (self.submission(item).data or b"") for item in cases)

    def _asks_for(self, cases: Sequence[CaseItem], *kinds: str) -> bool:
        """Return whether items of these kinds can be graded; looks at files only up to the first."""
        return any(item.kind in kinds and self.ungradable(item) is None for item in cases)

    def _start_ahead(self, gpu: Gpu, asked: Sequence[CaseItem]) -> None:
        """Begin to compile what the workers on the GPU will launch, file by file."""
        from grader.judge.compile_ahead import CompileAhead, File, Launching

        files: dict[Path, CaseItem] = {}
        calls: dict[Path, list[Launching]] = {}
        for item in asked:
            path = self.submission(item).path
            files.setdefault(path, item)
            set_bytes = gpu.memory_bytes // SET_SHARE if item.kind == SPEED else 0
            tunings = ["chance"] if item.kind == CORRECTNESS else ["full"]
            if item.kind == CORRECTNESS and item.exercise.follow is not None:
                tunings.append("full")  # a random choice is also made with another config
            for tuning in tunings:
                calls.setdefault(path, []).append(Launching(item.exercise, item.case, tuning, set_bytes))
        self._ahead = CompileAhead(self.session, self._arena("host"), gpu.capability)
        self._ahead.start(
            File(self.submission(item), item.entry.given, self._other_files(item), tuple(calls[path]))
            for path, item in files.items()
        )

    def begin(self, asked: Sequence[Item]) -> None:
        """Start the first worker, and what takes seconds and is needed later; a GPU is free now.

        An error has no consequence here: the item that meets it again says what it is.
        """
        if self.source == REFERENCE or LEAN in os.environ:
            return
        cases = [item for item in asked if isinstance(item, CaseItem) and not item.exercise.native]
        with contextlib.suppress(Exception):
            graded = [item for item in cases if self.ungradable(item) is None]
            first = next((item for item in graded if item.kind == CORRECTNESS), None)
            if first is None:
                return
            worker = self._worker_for_cases(first)
            if self.tier == "gpu":
                self._load_libraries(graded)
            worker.begin()
            if self._registers_operators(graded):
                self.session.parent(interpreted=self.tier == "cpu").import_operators()
            if self.tier == "gpu":
                from grader.judge import codegen_checks

                if any(item.name == codegen_checks.TENSOR_CORES for item in graded):
                    self.session.parent(interpreted=True)

    def _load_libraries(self, graded: Sequence[CaseItem]) -> None:
        """Compute what a case of each function expects, while the fork server imports what it needs.

        PyTorch loads cuBLAS and each of its own kernels at first use, which takes a second in all.
        """
        from grader.judge import comparison
        from grader.judge.inputs import draw

        first = {item.exercise: item.case for item in reversed(graded) if item.kind == CORRECTNESS}
        for exercise, case in first.items():
            comparison.expect(exercise, case, draw(exercise, case, self.seed, self.session.device))

    def _compile_first(self) -> None:
        """Wait for all kernels, and end the processes that compiled them, before the first case runs."""
        wait(self._kernels.values())
        if self._compiling:
            self._compiling[1].close()
            self._compiling = None
        self.session.end_parent(interpreted=False)

    @property
    def session(self) -> Session:
        """Return the session, created at first use: a run that executes nothing starts no process."""
        if self._session is None:
            device = "cuda" if self.tier == "gpu" else "cpu"
            self._session = Session.of_run(device, self.seed, self._confined)
        if self.gpu and self.gpu.mig:
            self._session.no_gate = "this is a slice of a GPU, by MIG"
        return self._session

    @property
    def no_gate(self) -> str:
        """Return why calls on this GPU ran without a gate; "" if they did not."""
        return (self._session.no_gate if self._session else None) or ""

    @property
    def assurance_level(self) -> int | None:
        """Return 1 for L1 and so on; None if no worker was needed."""
        found = self._session.assurance if self._session else None
        return found.level if found else None

    @property
    def assurance(self) -> str:
        """Return in words how far this run's workers were confined, or that none was needed."""
        found = self._session.assurance if self._session else None
        words = [found.words if found else "none needed: nothing was run"]
        if not self.screened:
            words.append("static screen off")
        if self._session and self._session.uncounted:
            words.append(f"kernels were not counted: {self._session.uncounted[0]}")
        return "; ".join(words)

    def submission(self, item: Item) -> Submission:
        """Return the file that is graded for an item; each is read once in a run."""
        if self.source == REFERENCE:
            return self._read(item.entry.lab_file)
        most = MOST_DOCUMENT_BYTES if isinstance(item, DocumentItem) else MOST_BYTES
        return self._read(item.entry.submission(Path(self.source), item.exercise), most)

    def _read(self, path: Path, most: int = MOST_BYTES) -> Submission:
        if path not in self._submissions:
            self._submissions[path] = Submission.read(path, most)
        return self._submissions[path]

    def answer(self, item: Item) -> Outcome:
        """Return the outcome of one item; an error in the grader itself is a GRADER_FAULT."""
        key = (item.entry.folder, item.exercise.name)
        whole = False  # whether the outcome is about the file as a whole, and not about this case
        try:
            outcome = self.ungradable(item)
            whole = outcome is not None and outcome.verdict is not Verdict.NOT_GRADED
            outcome = outcome or self._unbuilt(item) or self._blocked(item) or self._ask(item)
        except Exception as error:  # a fault of the grader must cost no points, and is named
            place = traceback.extract_tb(error.__traceback__)[-1]
            fault = type(error).__name__
            words = f"{fault}: {error} ({Path(place.filename).name}:{place.lineno})"
            outcome = Outcome(Verdict.GRADER_FAULT, where=words, fault=fault)
        stopped = outcome.verdict is Verdict.NOT_STARTED and outcome.where and isinstance(item, CaseItem)
        if stopped and self.submission(item).open_todos:  # a placeholder in a kernel, found only when it ran
            todos = listed(self.submission(item).open_todos)
            outcome = replace(outcome, where="", frames=(), open_todos=todos)
        if outcome.verdict is Verdict.NOT_STARTED and outcome.open_todos and isinstance(item, CaseItem):
            outcome = replace(outcome, where=self._done_alone(item))
        if item.kind == CORRECTNESS and outcome.verdict not in (
            Verdict.PASS,
            Verdict.NOT_GRADED,
            Verdict.GRADER_FAULT,
        ):
            self._failed.setdefault(key, outcome)
        if item.case is not None and item.case.label and not whole:
            return concealed(outcome)
        return self._with_cause(item, outcome) if isinstance(item, CaseItem) else outcome

    def _done_alone(self, item: CaseItem) -> str:
        """Return what finished TODOs of a file with open ones do, a line each; "" if none is known."""
        key = (item.entry.folder, item.exercise.name)
        submission = self.submission(item)
        if key not in self._alone:
            self._alone[key] = ""
            if self.tier == "cpu" and checks_of(item.exercise.name, submission):
                from grader.judge.todo_results import results

                with contextlib.suppress(Exception):  # no verdict is lost for want of it
                    worker = self._worker_for_cases(item)
                    self._alone[key] = "\n".join(results(worker, item.exercise, submission))
                    worker.close()
        return self._alone[key]

    def _with_cause(self, item: CaseItem, outcome: Outcome) -> Outcome:
        """Return the outcome of an error with its cause, which is only shown."""
        from grader.judge import error_causes

        if self.source == REFERENCE or outcome.verdict not in error_causes.ERRORS:
            return outcome
        with contextlib.suppress(Exception):  # no verdict is lost for want of its cause
            readme = item.entry.folder / "README.md"
            facts = error_causes.FileFacts(
                self.submission(item).text,
                item.exercise.file,
                readme.read_text("utf-8") if readme.is_file() else "",
                self.tier,
                item.exercise.native is not None,
                {
                    **{one.stem: one.read_text("utf-8") for one in item.entry.given if one.suffix == ".py"},
                    **{one.path.stem: one.text for one in self._other_files(item) if one.path.is_file()},
                },
            )
            return error_causes.with_cause(outcome, facts)
        return outcome

    def _ask(self, item: Item) -> Outcome:
        if isinstance(item, DocumentItem):
            return self._document(item)
        ask = {CORRECTNESS: self._correctness, CODEGEN: self._codegen, SPEED: self._speed}
        return ask[item.kind](item)

    def _document(self, item: DocumentItem) -> Outcome:
        """Run a document's check in this process, because nothing of a document is executed."""
        _, check = item.exercise.checks[item.name]
        try:
            wrong = [one_line(words) for words in check(catalog.capstone_in(Path(self.source)))]
        except FileNotFoundError as missing:
            # The document cannot be made without a GPU.
            words = one_line(str(missing))
            if self.tier == "gpu":
                return Outcome(Verdict.NOT_STARTED, where=words)
            return Outcome(Verdict.NOT_GRADED, where=words, needs_gpu=True)
        except ValueError as unreadable:
            wrong = [one_line(str(unreadable))]
        if wrong:
            more = f"{len(wrong) - SHOWN_WRONG} more" if len(wrong) > SHOWN_WRONG else ""
            return Outcome(Verdict.WRONG, where="\n".join(filter(None, [*wrong[:SHOWN_WRONG], more])))
        return Outcome(Verdict.PASS, share=1.0)

    def _unbuilt(self, item: Item) -> Outcome | None:
        """Return what the compiler says against a CUDA C++ file whose call failed: that tells why."""
        first = self._failed.get((item.entry.folder, item.exercise.name))
        native = isinstance(item.exercise, Exercise) and item.exercise.native
        if (
            item.kind not in (CODEGEN, COMPILES)
            or not native
            or first is None
            or first.verdict is not Verdict.CRASHED
        ):
            return None
        found = self._ask(item)
        return found if found.verdict is Verdict.COMPILE_ERROR else None

    def _blocked(self, item: Item) -> Outcome | None:
        """Return an outcome for generated code and speed if a case of the function is wrong."""
        first = self._failed.get((item.entry.folder, item.exercise.name))
        if item.kind == CORRECTNESS or first is None:
            return None
        blocked = Blocked(exercise=item.exercise.name, verdict=first.verdict, reason=first.reason)
        return Outcome(first.verdict, first.reason, where=blocked.words, blocked=blocked)

    def ungradable(self, item: Item) -> Outcome | None:
        """Return an outcome known without running anything: no file, no function, open TODOs, or no GPU."""
        key = (item.entry.folder, item.exercise.name)
        if isinstance(item, DocumentItem):
            reference = Outcome(Verdict.NOT_GRADED, where="the reference is only timed")
            return reference if self.source == REFERENCE else None
        if self.source != REFERENCE:
            if key not in self._checked:
                self._checked[key] = self._check(item)
            if self._checked[key]:
                return self._checked[key]
        elif item.kind != SPEED:
            return Outcome(Verdict.NOT_GRADED, where="the reference is only timed")
        if item.kind == CODEGEN:
            known = ", ".join(f"sm_{arch}" for arch in ARCHS)
            words = f"sm_{self.arch} is not supported; choose one of {known}"
            return None if self.arch in ARCHS else Outcome(Verdict.NOT_GRADED, where=words)
        if self.tier == "codegen":
            return Outcome(Verdict.NOT_GRADED, where="this tier only compiles and runs nothing")
        if self.tier == "cpu" and item.kind == SPEED:
            return Outcome(Verdict.NOT_GRADED, where="needs a GPU", needs_gpu=True)
        if self.tier == "cpu" and item.exercise.native:
            words = "needs a GPU: CUDA C++ cannot run without one"
            return Outcome(Verdict.NOT_GRADED, where=words, needs_gpu=True)
        if self.tier == "cpu" and item.case.needs_gpu:
            why = (
                "bf16 is wrong in the interpreter"
                if item.case.dtype == "bf16"
                else "too large for the interpreter"
            )
            return Outcome(Verdict.NOT_GRADED, where=f"needs a GPU: {why}", needs_gpu=True)
        if self.tier == "gpu" and item.case.is_far and not self._lends_far_rows:
            words = f"needs a GPU with {2 * FAR_BYTES >> 30} GiB: its rows lie beyond 2^31 elements"
            return Outcome(Verdict.NOT_GRADED, where=words, needs_gpu=True)
        return None

    def _check(self, item: CaseItem) -> Outcome | None:
        """Return an outcome of the file alone: missing, not Python, open TODOs, or not permitted."""
        submission = self.submission(item)
        lab, parts = item.entry.lab, self.parts(item)
        found = check(submission, item.exercise)
        found = found or next(filter(None, (check_part(part) for part in parts)), None)
        if found or not self.screened:
            return found
        return screen(submission, lab, item.exercise, parts) or next(
            filter(None, (self._screened(part, lab, parts[:at]) for at, part in enumerate(parts))), None
        )

    @staticmethod
    def _screened(part: Part, lab: Lab, parts: Sequence[Part]) -> Outcome | None:
        found = screen_part(part, lab, parts)
        where = f"{part.submission.name}, which this file imports, {found.where}" if found else ""
        return replace(found, where=where, frames=()) if found else None

    def parts(self, item: CaseItem) -> tuple[Part, ...]:
        """Return the student's other files that the item's file imports, in the order of their imports."""
        files = item.entry.lab.imports.get(item.exercise.file, ())
        if self.source == REFERENCE or not files:
            return ()
        submission = self.submission(item)
        if submission.path not in self._parts:
            self._parts[submission.path] = parts_of(submission, files, self._read)
        return self._parts[submission.path]

    def imports_sha256(self, item: Item) -> str:
        """Return one hash of the student's other files that an item's file imports; empty without any."""
        files = self._other_files(item) if isinstance(item, CaseItem) else ()
        named = "".join(f"{file.name} {file.sha256}\n" for file in files)
        return hashlib.sha256(named.encode()).hexdigest() if files else ""

    def _other_files(self, item: CaseItem) -> tuple[Submission, ...]:
        return tuple(part.submission for part in self.parts(item))

    def _correctness(self, item: CaseItem) -> Outcome:
        key = (item.entry.folder, item.exercise.name)
        if self.gpu and not self.no_gate and key != self._last_graded:
            last, self._last_graded = self._last_graded, key
            self._begin_timed([one for one in self._timed if (one.entry.folder, one.exercise.name) == last])
        begun = self._beside.take(item)
        outcome = begun.result() if begun else self._graded_by(self._worker_for_cases(item), item)
        if outcome.in_the_interpreter and self._compiles(item, outcome):
            outcome = replace(outcome, cause=INTERPRETER_LIMIT)
        if outcome.verdict is Verdict.PASS:
            self._note_verified(item, outcome)
        self._begin_beside(item)
        self._begin_following(item)
        return outcome

    def _graded_by(self, worker: SubmissionWorker, item: CaseItem) -> Outcome:
        """Grade a case, and end a worker that may not grade another one."""
        from grader.judge.correctness import grade_case

        try:
            count = self.tier == "gpu" and item.case is _largest(item.exercise)
            outcome = grade_case(worker, item.entry.lab, item.exercise, item.case, count)
        except Exception:
            worker.close()  # the next case gets a new worker, in case this one caused the error
            raise
        if outcome.verdict is not Verdict.PASS and not outcome.printed:
            outcome = replace(outcome, printed=worker.printed)
        # The interpreter stores nothing outside of a tensor, and an exception ends nothing but the call; on a
        # GPU either may have changed anything.
        ended_well = (*WRONG_RESULTS, Verdict.CRASHED) if self.tier == "cpu" else (Verdict.WRONG,)
        if outcome.verdict not in (Verdict.PASS, *ended_well):
            worker.close()  # the next case gets a new worker
        return outcome

    def _begin_beside(self, item: CaseItem) -> None:
        """After the first case of a file, let another worker grade the last ones."""
        cases = self._cases.pop(self.submission(item).path, [])
        left = cases[cases.index(item) + 1 :] if item in cases else []
        if len(left) >= FEWEST:
            worker = self._worker("beside", item, self._arena("beside"), interpreted=True)
            # What is compiled ahead keeps the other core busy, and would be waited for at the end.
            first = [one for (folder, _), one in self._kernels.items() if folder == item.entry.folder]
            self._beside.begin(left, lambda one: self._graded_by(worker, one), worker.kill, first)

    def _begin_following(self, item: CaseItem) -> None:
        """Start the worker of the next file, which sets itself up while the cases of this one run."""
        path = self.submission(item).path
        if path in self._following and not self.session.parent(self.tier == "cpu").is_busy:
            self._worker_for_cases(self._following.pop(path)).begin()

    def _worker_for_cases(self, item: CaseItem) -> SubmissionWorker:
        return self._worker("correctness", item, self._arena("cases"), interpreted=self.tier == "cpu")

    def _compiles(self, item: CaseItem, outcome: Outcome) -> bool:
        """Return whether the call of a case compiles, whose kernel failed in the interpreter.

        Asked once for an exercise and the line that failed.
        """
        key = (item.entry.folder, item.exercise.name, outcome.frames[:1])
        begun = self._kernels.get(key[:2])
        if begun and wait([begun], timeout=ASKED_LIMIT_S).not_done:
            return False  # of the same file, and not over in the time that this may take
        if key not in self._compiled:
            kernels = self._compiler.submit(self._compile, item, ASKED_LIMIT_S, parsed=False).result()
            self._compiled[key] = not isinstance(kernels, Outcome)
        return self._compiled[key]

    def _codegen(self, item: CaseItem) -> Outcome:
        from grader.judge import codegen_checks

        kernels = self.kernels(item)
        if isinstance(kernels, Outcome):
            return kernels
        if item.name == COMPILES:
            count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
            passed, words = bool(kernels), f"{count} compiled for sm_{self.arch}"
        else:
            verified = self._verified_calls(item, kernels)
            if isinstance(verified, Outcome):
                return verified
            passed, words = codegen_checks.check(item.name, kernels, verified)
            kernels = codegen_checks.verified_only(kernels, verified) if verified else kernels
        return codegen_checks.outcome(item.entry.lab, item.name, passed, words, kernels)

    def _verified_calls(self, item: CaseItem, kernels: Sequence[CompiledKernel]) -> Verified | Outcome | None:
        """Return what the cases that passed have launched, or the outcome of one that does not pass.

        None where nothing can run: this tier only compiles, or CUDA C++ on a machine without a GPU. Where
        only checks of generated code were asked for, cases run until each of `kernels` was launched.
        """
        from grader.judge import codegen_checks

        key = (item.entry.folder, item.exercise.name)
        cases = [case for case in item.exercise.cases if self.tier == "gpu" or not case.needs_gpu]
        if self.tier == "codegen" or item.exercise.native or not cases:
            return None
        wanted = {kernel.identity for kernel in kernels}
        usual = [case for case in cases if _is_usual(case)] or [min(cases, key=_size)]
        for case in sorted(usual, key=_size, reverse=True):
            if key in self._verified and wanted <= self._verified[key].launched.keys():
                break
            if (key, str(case.params)) not in self._passed:
                outcome = self.answer(replace(item, kind=CORRECTNESS, name=case.name, case=case))
                if outcome.verdict is not Verdict.PASS:
                    return self._blocked(item) or outcome
        verified = self._verified[key]
        if item.name != codegen_checks.TENSOR_CORES:
            return verified
        small = [case for case in usual if not (case.needs_gpu or case.is_far)]
        if self.tier == "gpu":
            verified = self._with_products(item, verified, small, wanted)
        return replace(verified, is_needed=self._needs_products(item, small))

    def _needs_products(self, item: CaseItem, cases: Sequence[Case]) -> bool:
        """Return whether a result changes where tl.dot adds nothing to its accumulator, in the interpreter.

        Products of zeros, or of what is thrown away, are no work of the result. True where no case can show
        it.
        """
        from grader.judge.trial import Trial

        worker = self._worker("products", item, self._arena("host"), interpreted=True)
        for case in sorted(cases, key=_size, reverse=True)[:1]:
            trial = Trial(item.exercise, case, self.seed)
            called = trial.call(worker, products_idle=True) if worker.start() is None else None
            if called is not None:
                return trial.distance(called) > FEWEST_OF_PRODUCTS
        return True

    def _with_products(
        self, item: CaseItem, verified: Verified, cases: Sequence[Case], wanted: set[str]
    ) -> Verified:
        """Return what was verified on a GPU with the products of tl.dot of one of `cases`.

        A GPU counts no products, and an instruction in PTX may lie behind a branch that no call takes: so the
        largest case that launches a kernel of `wanted`, by identity, runs in the interpreter as well. Where
        none runs there, the launches on the GPU count.
        """
        from grader.judge.codegen_checks import Verified
        from grader.judge.trial import Trial

        speed = item.exercise.speed
        if not (speed and speed.flops):
            return verified
        zeros, ran = dict.fromkeys(verified.launched, 0), False
        worker = self._worker("products", item, self._arena("host"), interpreted=True)
        for case in sorted(cases, key=_size, reverse=True):
            trial = Trial(item.exercise, case, self.seed)
            if worker.start() is None and trial.right(worker, limit_s=case.limit_s) == 1.0:
                ran = True
                if wanted & worker.launched.keys():
                    # A product is two operations, and half of the products are wanted.
                    return Verified({**zeros, **worker.launched}, speed.flops(case) / 4)
        return Verified(zeros, verified.wanted, is_counted=False) if ran else verified

    def _note_verified(self, item: CaseItem, outcome: Outcome) -> None:
        """Add the launches of a case that passed to those of its exercise."""
        from grader.judge.codegen_checks import Verified
        from grader.judge.correctness import runs

        key = (item.entry.folder, item.exercise.name)
        before = self._verified.get(key, Verified())
        speed, wanted = item.exercise.speed, 1.0
        if self.tier == "cpu":  # a product is two operations, and half of the products are wanted
            wanted = speed.flops(item.case) / 4 if speed and speed.flops else 0.0
        both = Counter(before.launched)
        both.update(outcome.launched)  # unlike a sum this keeps the zeros
        # On a GPU one launch with tensor cores is enough.
        wanted = before.wanted + len(runs(item.exercise, "cpu")) * wanted if self.tier == "cpu" else wanted
        calls = [*before.calls, Verified(outcome.launched, wanted - before.wanted)]
        self._verified[key] = Verified(both, wanted, calls=tuple(calls if self.tier == "cpu" else ()))
        self._passed.add((key, str(item.case.params)))

    def kernels(self, item: CaseItem) -> list[CompiledKernel] | Outcome:
        """Return the facts of the kernels that the exercise's call launches, or the outcome if it failed."""
        key = (item.entry.folder, item.exercise.name)
        if key not in self._kernels:
            self._kernels[key] = self._compiler.submit(self._compile, item)
        return self._kernels[key].result()

    def _compile(
        self, item: CaseItem, limit_s: float = CODEGEN_LIMIT_S, parsed: bool = True
    ) -> list[CompiledKernel] | Outcome:
        """Compile what the call of a case launches; if `parsed`, read what those of other sizes launch."""
        from grader.codegen import kernel_facts
        from grader.judge.correctness import lay_out
        from grader.judge.inputs import Placer, numbers_in
        from grader.judge.repair.source import has_branches
        from grader.judge.shapes import shapes_of
        from grader.worker.submission_worker import SubmissionWorker

        submission = self.submission(item)
        if self._first_parent:
            _ = self._first_parent.findings
        if self._compiling is None or self._compiling[0] is not submission:
            if self._compiling:
                self._compiling[1].close()
            arena = self._arena("host")
            self._compiling = (
                submission,
                SubmissionWorker(
                    self.session,
                    submission,
                    arena,
                    tuning="offline",
                    arch=self.arch,
                    given=item.entry.given,
                    parts=self._other_files(item),
                ),
            )
        if self._ahead:
            self._ahead.wait(submission.path)  # what it compiles need not be compiled here as well
        worker = self._compiling[1]
        failed = worker.start()
        if failed:
            return failed
        for old in worker.folder.glob("kernel-*"):
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink()
        exercise = item.exercise
        # Of CUDA C++ only host code runs here, which may launch another grid for each size.
        cases = (*exercise.cases, *(exercise.speed.shapes if exercise.speed else ()))
        for case in cases if exercise.native else (item.case,):
            shapes = shapes_of(exercise, case)
            calls = [lay_out(exercise, case, Placer(), shapes)]
            plan = worker.prepare(exercise, calls, limit_s, named=numbers_in(shapes))
            failed = plan if isinstance(plan, Outcome) else worker.go(plan, limit_s)
            if failed:
                return failed
        try:
            if exercise.native:
                arch = nvcc.arch_name(*divmod(self.arch, 10))
                built = nvcc.library(submission.path, self.session.cache(submission.path), arch)
                return kernel_facts.read_native(built, self.arch)
            kernels = kernel_facts.read_kernels(worker.folder, self.arch)
        except kernel_facts.WorkerFileError as error:
            return Outcome(Verdict.CRASHED, Reason.PROTOCOL, where=one_line(str(error)))
        # A kernel may have a branch that Triton sees in other sizes alone.
        for case in _ends_of_sizes(exercise.cases) if parsed and has_branches(submission.text) else ():
            shapes = shapes_of(exercise, case)
            plan = worker.prepare(
                exercise, [lay_out(exercise, case, Placer(), shapes)], limit_s, named=numbers_in(shapes)
            )
            failed = plan if isinstance(plan, Outcome) else worker.go(plan, limit_s, parsed=True)
            if failed:
                return replace(failed, where=f"{failed.where} ({case.name})")
        return kernels

    def _speed(self, item: CaseItem) -> Outcome:
        from grader.judge.speed import SpeedTest
        from grader.worker import gate

        wait(self._kernels.values())  # a busy thread of this process would disturb the timing
        if self._ahead:
            self._ahead.wait()
        arena = self._arena("sets")
        missing = gate.missing(self.session)
        if missing:
            where = f"speed is graded behind a gate only, and there is none: {missing}"
            return Outcome(Verdict.NOT_GRADED, where=where, needs_gpu=True)
        student = self._timed_workers.of(item)
        reference = self._worker(
            "reference", item, arena, self._read(item.entry.lab_file), tuning="full", trusted=True
        )
        if not student.is_running:
            self._begin_timed(self._timed[self._timed.index(item) :] if item in self._timed else [item])
        reference.set_up()
        self._timed_workers.set_up()
        speed = item.exercise.speed
        function = speed.baselines[0].function.__name__ if speed and self.source == REFERENCE else ""
        counted = not self.screened  # with the screen on, host code cannot hide the operators that it calls
        test = SpeedTest(
            item.entry.lab, item.exercise, item.case, student, reference, self.gpu, function, counted
        )
        outcome = test.run()
        if outcome.timing is None:
            student.close()  # it died or failed; the next shape gets a new worker
        return outcome

    def _begin_timed(self, coming: Sequence[CaseItem]) -> None:
        """Start the processes of timed shapes whose function has no wrong case so far."""
        coming = [item for item in coming if self._blocked(item) is None]
        if coming:
            self._timed_workers.begin(coming)

    @property
    def _timed_workers(self) -> TimedWorkers:
        from grader.judge.timed_workers import TimedWorkers, most_waiting

        if self._timed_by is None:
            import torch

            sets, trusted = self._arena("sets"), self.source == REFERENCE
            free = torch.cuda.mem_get_info()[0] if self.gpu else 0  # beside the buffer sets
            most = most_waiting(free)
            self._timed_by = TimedWorkers(
                most,
                lambda one: self._new_worker(one, sets, self.submission(one), tuning="full", trusted=trusted),
            )
        return self._timed_by

    def explained(
        self,
        answers: Sequence[tuple[Item, Outcome, float]],
        begin: Callable[[str], object],
        tell: Callable[[str, Sequence[str]], object],
        start_up_s: float | None = None,
    ) -> list[tuple[Item, Outcome, float]]:
        """Return the answers with one cause for all wrong cases of an exercise.

        `begin` is called with the name of each exercise whose cause is looked for, because that takes
        seconds, and `tell` with causes as soon as they are found. `start_up_s` are seconds of the run
        before its first case: with it that ends after the lab's `search_s`, by the clock, and without it
        after so much work. An error of the grader on the way is printed, and leaves the answers as they are.
        """
        if not any(outcome.verdict in (*WRONG_RESULTS, Verdict.CRASHED) for _, outcome, _ in answers):
            return [*answers]
        from grader.judge.explanation import explained

        def workers_for(item: CaseItem) -> list[SubmissionWorker]:
            arena, cores = self._arena("host"), min(len(os.sched_getaffinity(0)), MOST_SEARCHING)
            return [self._worker(f"search {n}", item, arena, interpreted=True) for n in range(cores)]

        try:
            return explained(answers, self.submission, workers_for, begin, tell, start_up_s)
        except Exception as error:  # of the grader itself: every case has its verdict already
            sys.stderr.write(f"no common cause was looked for: {type(error).__name__}: {error}\n")
            return [*answers]

    @property
    def _lends_far_rows(self) -> bool:
        """Whether this GPU, whose memory is taken whole, has enough for rows beyond 2^31 elements."""
        return self.gpu is None or self.gpu.memory_bytes >= 2 * FAR_BYTES

    def _arena(self, name: str) -> Arena:
        from grader.worker.shared_memory import Arena

        if name not in self._arenas:
            if name == "sets":
                import torch

                free, _ = torch.cuda.mem_get_info()
                self._arenas[name] = Arena.create("cuda", 2 * free // SET_SHARE)
            else:
                device = "cpu" if name == "host" else self.session.device
                size = FAR_BYTES if device == "cuda" and self._lends_far_rows else ARENA_BYTES[device]
                self._arenas[name] = Arena.create(device, size)
        return self._arenas[name]

    def _worker(
        self,
        purpose: str,
        item: CaseItem,
        arena: Arena,
        submission: Submission | None = None,
        *,
        interpreted: bool = False,
        tuning: str = "chance",
        trusted: bool = False,
    ) -> SubmissionWorker:
        submission, lab = submission or self.submission(item), item.entry.folder
        key = (purpose, lab, submission.path)
        if key not in self._workers:
            # One lab at a time: workers of the previous lab are ended to free their memory.
            self._end([other for other in self._workers if other[1] != lab])
            self._workers[key] = self._new_worker(
                item, arena, submission, interpreted=interpreted, tuning=tuning, trusted=trusted
            )
        return self._workers[key]

    def _end(self, keys: Sequence[tuple[str, Path, Path]]) -> None:
        if keys:
            from grader.worker.submission_worker import close_all

            close_all([self._workers.pop(key) for key in keys])

    def _new_worker(
        self,
        item: CaseItem,
        arena: Arena,
        submission: Submission,
        *,
        interpreted: bool = False,
        tuning: str,
        trusted: bool,
    ) -> SubmissionWorker:
        from grader.worker.submission_worker import SubmissionWorker

        return SubmissionWorker(
            self.session,
            submission,
            arena,
            interpreted=interpreted,
            tuning=tuning,
            trusted=trusted,
            given=item.entry.given,
            parts=self._other_files(item) if submission is self.submission(item) else (),
        )

    def close(self) -> None:
        """End every process and free what the run holds."""
        self._beside.close()
        self._compiler.shutdown(wait=False, cancel_futures=True)
        if self._ahead:
            self._ahead.close()
        if self._compiling:
            self._compiling[1].close()
        self._compiler.shutdown()
        if self._timed_by:
            self._timed_by.close()
        self._end([*self._workers])
        for arena in self._arenas.values():
            arena.close()
        if "sets" in self._arenas:
            # torch still caches the memory that timing used; nothing needs it any more.
            import torch

            torch.cuda.empty_cache()
        if self._session and not self._borrowed:
            self._session.close()


MOST_SEARCHING = 2  # workers that look for the cause of a mistake at a time
# Of matrices in 16 bits whose rows lie beyond 2^31 elements: 4 GiB above and 4 GiB below where they begin.
FAR_BYTES = (8 << 30) + (64 << 20)
ARENA_BYTES = {"cpu": 2 * FAR_BYTES, "cuda": 1 << 30}  # on a CPU only the touched pages take memory


def _largest(exercise: Exercise) -> Case:
    """Return the case with the largest product of sizes, which has about the most elements."""
    return max(exercise.cases, key=_size)


def _size(case: Case) -> int:
    return math.prod(n for n in case.params.values() if isinstance(n, int))


def _ends_of_sizes(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with the smallest and the largest value of each size, each case once."""
    open_ones = [case for case in cases if not (case.label or case.is_far)]
    sizes = dict.fromkeys(
        name for case in open_ones for name, value in case.params.items() if type(value) is int
    )
    found = dict[str, Case]()
    for name in sizes:
        with_it = [case for case in open_ones if type(case.params.get(name)) is int]
        for end in (min, max):
            case = end(with_it, key=lambda one: one.params[name])
            found[case.name] = case
    return list(found.values())


def _is_usual(case: Case) -> bool:
    sizes = [n for n in case.params.values() if isinstance(n, int)]
    return max(sizes, default=0) <= USUAL_SIZE and _size(case) <= USUAL_PRODUCT

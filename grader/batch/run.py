"""One command over a class: take in, test the machine, grade what is open, and say how it stands."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from grader import __version__, gpu
from grader import hidden as hidden_cases
from grader.batch import drift, fingerprint, intake, matching, models, receipts, seeds, selftest, wanted
from grader.batch import roster as rosters
from grader.batch import site as sites
from grader.batch.alive import Lock
from grader.batch.engine import Engine
from grader.batch.layout import RunFolder
from grader.batch.models import Intake, RunRecord, State, TaskRecord
from grader.batch.plan import Plan, Planner, reopen, without_receipt
from grader.batch.progress import Progress
from grader.batch.work import Task
from grader.files import read_bytes
from grader.results import Machine, now

OK, FAULT = 0, 3
LIMIT_S = 3600.0


class AskedError(Exception):
    """What was asked for cannot be done, in words."""


@dataclass(frozen=True)
class Asked:
    """What a command over a class was asked."""

    submissions: Path
    out: Path
    roster: Path | None = None
    labs: str | None = None
    tier: str = "auto"
    site: Path | None = None
    jobs: int | None = None
    only: tuple[str, ...] = ()  # these students alone
    again: bool = False  # grade them although nothing has changed
    keyword: str | None = None
    hidden: Path | None = None
    secret: Path | None = None
    limit_s: float = LIMIT_S
    blind_share: float = 0.05
    self_test: bool = True
    command: tuple[str, ...] = Task.command  # that grades; another one is for tests


def grade_class(asked: Asked, console: Console) -> int:
    """The exit code: 0, or 3 where a machine failed the self-test or a unit stays open by its fault.

    AskedError, roster's, site's and lock's errors for what cannot be done.
    """
    asked.out.mkdir(parents=True, exist_ok=True)
    with Lock(RunFolder(asked.out.resolve()).lock) as lock:
        return _Class(asked, console, lock.token).run()


class _Class:
    """The steps of one command, and what they share."""

    def __init__(self, asked: Asked, console: Console, token: str):
        self._asked, self._console = asked, console
        self._folder = RunFolder(asked.out.resolve())
        self._units = wanted.units()
        try:
            self._chosen = [one.unit for one in wanted.chosen(asked.labs, self._units)]
            if asked.hidden:
                hidden_cases.read_known(asked.hidden)
            if asked.keyword:
                self._chosen = matching.units(asked.keyword, self._chosen, asked.hidden)
            if not self._chosen:
                raise AskedError(f"nothing matches -k {asked.keyword!r}")
            self._secret = seeds.load(self._folder.secret, asked.secret)
            self._hidden = hashlib.sha256(read_bytes(asked.hidden)).hexdigest() if asked.hidden else None
        except (ValueError, OSError, hidden_cases.HiddenError) as error:
            raise AskedError(str(error)) from None
        self._site = sites.read(asked.site)
        self._tier = _tier(asked.tier, self._site)
        like = Task(
            run=str(self._folder.root), token=token, student="", unit=self._chosen[0], blind=False, seed=0,
            attempt=1, fingerprint="", tier=self._tier, keyword=asked.keyword, limit_s=asked.limit_s,
            hidden=str(asked.hidden.resolve()) if asked.hidden else None, files="", folder="",
            command=asked.command,
        )  # fmt: skip
        self._planner = Planner(self._folder, self._secret, like, self._hidden, asked.blind_share)
        self._machines: list[Machine] = []

    def run(self) -> int:
        """All steps."""
        mine = self._take_in()
        plan = self._planner.plan(mine, self._chosen, self._asked.again)
        if self._asked.again:
            reopen(plan.tasks)
        self._receipts(without_receipt(plan.gradable), mine)
        if plan.tasks:
            token = self._planner.like.token
            with Engine(self._site, self._tier, self._asked.jobs, self._folder, token) as engine:
                if self._asked.self_test and not self._machine_is_well(engine):
                    return FAULT
                self._grade(engine, plan, mine)
        return self._finish(plan)

    def _take_in(self) -> dict[str, Intake]:
        """The intakes of the students who were asked for; run.json then lists all."""
        roster = rosters.read(self._asked.roster) if self._asked.roster else rosters.Roster()
        found, unknown = intake.whose(self._asked.submissions, roster)
        everyone = sorted({*roster.students, *found})
        if not everyone:
            raise AskedError(f"{self._asked.submissions}: no submission in it")
        strangers = [one for one in self._asked.only if one not in everyone]
        if strangers:
            raise AskedError(f"--only {strangers[0]}: no such student; {_some(everyone)}")
        taken = {}
        for student in self._asked.only or everyone:
            handed_in = found.get(student, intake.HandedIn(student))
            taken[student] = intake.take_in(handed_in, roster, self._units, self._folder)
        earlier = {path.parent.name for path in self._folder.students.glob("*/intake.json")}
        gone = sorted(earlier - set(everyone))
        self._begin(sorted({*everyone, *earlier}), unknown, gone)
        counts = Counter(one.kind for one in taken.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        self._say(f"{len(taken)} students: {kinds}")
        for words, names in (("not on the roster", unknown), ("no longer among the submissions", gone)):
            if names:
                self._say(f"{words}: {', '.join(names)}")
        for one in taken.values():
            if one.problem:
                self._say(f"{one.id} cannot be graded: {one.problem}")
        return taken

    def _begin(self, students: list[str], unknown: list[str], gone: list[str]) -> None:
        """run.json, which adds units to those of earlier commands."""
        try:
            before = models.read(self._folder.run, RunRecord)
        except FileNotFoundError:
            before = None
        except ValueError as error:
            raise AskedError(f"{self._folder.run}: {error}") from None
        names = {unit.name for unit in (*(before.units if before else ()), *self._chosen)}
        self._record = RunRecord(
            grader=__version__,
            grader_sha256=fingerprint.grader(),
            began=before.began if before else now(),
            finished=before.finished if before else None,
            tier=self._tier,
            keyword=self._asked.keyword,
            hidden_sha256=self._hidden,
            seed_commitment=seeds.commitment(self._secret),
            units=[one.unit for one in self._units if one.unit.name in names],
            students=students,
            unknown=unknown,
            gone=gone,
            machines=before.machines if before else [],
        )
        models.write(self._folder.run, self._record)

    def _machine_is_well(self, engine: Engine) -> bool:
        missing = selftest.missing()
        if missing:
            raise AskedError(
                f"the self-test needs {missing[0]}, which a release for students lacks: grade from the "
                "course's own checkout, or leave it out with --no-self-test"
            )
        gpus = sites.accelerators(self._site, self._tier)[: self._asked.jobs]
        known = selftest.tasks(self._folder, self._units, self._planner.like, max(1, len(gpus)))
        with Progress(self._console, len(known), "self-test") as progress:
            ended = []
            for task, record in engine.grade([task for task, _ in known], progress):
                ended.append((task, record))
                progress.done(task.student)
        found = selftest.judge(ended, {task.student: expected for task, expected in known})
        models.write(self._folder.selftest, found)
        for one in found.known:
            if not one.held:
                wanted = " or ".join(one.expected)
                where = f" on GPU {one.accelerator}" if one.accelerator else ""
                self._say(f"SELF-TEST  {one.name}{where} got {one.got}, and must get {wanted}")
        untested = sorted({*gpus} - {one.accelerator for one in found.known})
        if untested:
            self._say(f"the self-test did not reach GPU {', '.join(untested)}")
        if not found.held:
            self._say(
                "nobody was graded: on this machine known files do not get their verdicts (make doctor)"
            )
        return found.held

    def _grade(self, engine: Engine, plan: Plan, mine: Mapping[str, Intake]) -> None:
        with Progress(self._console, len(plan.tasks), "grading") as progress:
            for task, record in engine.grade(plan.tasks, progress):
                if record.state is State.GRADED:
                    self._receipts([task], mine)
                else:
                    progress.note(f"{task.name}: {record.state.value}, {record.what}")
                progress.done(task.name if not task.blind else task.unit.name)

    def _receipts(self, tasks: Iterable[Task], mine: Mapping[str, Intake]) -> None:
        for task in tasks:
            files = fingerprint.files_of(mine[task.student], task.unit.name)
            machine = receipts.write(task, files, self._hidden, self._secret).machine
            if machine not in self._machines:
                self._machines.append(machine)

    def _finish(self, plan: Plan) -> int:
        """drift.json, run.json, and a table of states."""
        if not self._asked.only:
            models.write(self._folder.drift, drift.measure(self._folder, plan.blind))
        machines = [*self._record.machines]
        machines += [machine for machine in self._machines if machine not in machines]
        self._record = self._record.model_copy(update={"finished": now(), "machines": machines})
        models.write(self._folder.run, self._record)
        states: Counter[str] = Counter()
        for student in self._record.students:
            for unit in self._record.units:
                path = self._folder.student(student).unit(unit.name).task
                states[models.read(path, TaskRecord).state.value if path.exists() else "not asked for"] += 1
        self._say(", ".join(f"{count} {state}" for state, count in sorted(states.items())))
        self._say(f"written: {self._asked.out}")
        open_ones = [task for task in plan.gradable if _state(self._folder, task) is State.FAULT]
        if open_ones:
            self._say(
                f"open, by the machine's fault: {_some([task.name for task in open_ones])}; run it again"
            )
        return FAULT if open_ones else OK

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, markup=False)


def _state(folder: RunFolder, task: Task) -> State:
    return models.read(folder.student(task.student).unit(task.unit.name, task.blind).task, TaskRecord).state


def _tier(tier: str, site: sites.Site) -> str:
    """The tier that all are graded on; AskedError for a GPU tier without a GPU."""
    if site.tier:
        return site.tier if tier == "auto" else tier
    found, missing = gpu.find()
    if tier == "gpu" and not found:
        raise AskedError(f"--tier gpu: {missing}; --tier cpu grades what needs no GPU")
    return tier if tier != "auto" else "gpu" if found else "cpu"


def _some(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

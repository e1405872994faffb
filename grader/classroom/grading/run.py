"""Grade a class: collect submissions, test the machine, grade open units, and print a summary."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from grader import __version__
from grader.classroom import records
from grader.classroom.grading import (
    agreement,
    attempts,
    fingerprint,
    hidden_check,
    keyword_filter,
    preconditions,
    receipts,
    run_secret,
    summary,
)
from grader.classroom.grading import machines as sites
from grader.classroom.grading import self_test as selftest
from grader.classroom.grading.engine import Engine
from grader.classroom.grading.grade_unit import Task
from grader.classroom.grading.plan import (
    Plan,
    Planner,
    keep_earlier,
    reopen,
    unit_folder,
    without_receipt,
)
from grader.classroom.grading.preconditions import AskedError
from grader.classroom.grading.progress import Progress
from grader.classroom.grading.run_lock import Lock
from grader.classroom.intake import attempts as hand_ins
from grader.classroom.intake import entries, expected_files, gradescope_export, intake
from grader.classroom.intake import roster as rosters
from grader.classroom.records import Drift, Intake, RunRecord, State
from grader.classroom.run_folder import RunFolder
from grader.course import hidden_cases
from grader.results.machine import Machine, now
from grader.results.models import TIMING_PROTOCOL
from grader.sandbox import assurance, probe
from grader.system.files import read_bytes

OK, FAULT = 0, 3
LIMIT_S = 3600.0
BLIND_SHARE = 0.05


@dataclass(frozen=True)
class Asked:
    """Options of one `class` command."""

    submissions: Path
    out: Path
    roster: Path | None = None
    labs: str | None = None
    tier: str = "auto"
    site: Path | None = None
    jobs: int | None = None
    only: tuple[str, ...] = ()  # only these students
    again: bool = False  # grade them although nothing has changed
    regrade: str = attempts.BETTER  # which attempt at the same files counts
    keyword: str | None = None
    hidden: Path | None = None
    secret: Path | None = None
    attempts: str = hand_ins.Policy.LAST.value  # which attempt counts, if a student handed in several
    limit_s: float = LIMIT_S
    blind_share: float | None = None  # None: 5 percent, and none if only some students are graded
    self_test: bool = True
    ungated: bool = False  # grade on a GPU that has no gate
    command: tuple[str, ...] = Task.command  # the grader; tests replace it


def grade_class(asked: Asked, console: Console) -> int:
    """Grade a class; return 0, or 3 if the self-test failed or a unit stays open after a fault.

    Raises AskedError, RosterError, SiteError or BusyError if the request cannot be carried out.
    """
    preconditions.own(asked.out)
    with Lock(RunFolder(asked.out.resolve()).lock) as lock:
        return _Class(asked, console, lock.token).run()


class _Class:
    """The steps of one command and their shared state."""

    def __init__(self, asked: Asked, console: Console, token: str):
        self._options, self._console = asked, console
        self._folder = RunFolder(asked.out.resolve())
        self._units = expected_files.units()
        try:
            self._chosen = [one.unit for one in expected_files.chosen(asked.labs, self._units)]
            if asked.hidden:
                preconditions.must_build(asked.hidden)
            if asked.keyword:
                self._chosen = keyword_filter.units(asked.keyword, self._chosen, asked.hidden)
            if not self._chosen:
                raise AskedError(f"nothing matches -k {asked.keyword!r}")
            self._before = preconditions.begun(self._folder)
            preconditions.same_protocol(self._before)
            begun_with = self._before.seal_commitment if self._before else ""
            self._keys = run_secret.load(self._folder, asked.secret, begun_with)
            self._hidden = hashlib.sha256(read_bytes(asked.hidden)).hexdigest() if asked.hidden else None
        except (ValueError, OSError, hidden_cases.HiddenError) as error:
            raise AskedError(str(error)) from None
        self._site = sites.read(asked.site)
        self._tier = preconditions.tier_of(asked.tier, self._site)
        like = Task(
            run=str(self._folder.root), token=token, student="", unit=self._chosen[0], blind=False, seed=0,
            attempt=1, fingerprint="", tier=self._tier, keyword=asked.keyword, limit_s=asked.limit_s,
            hidden=str(asked.hidden.resolve()) if asked.hidden else None, files="", folder="",
            command=asked.command,
        )  # fmt: skip
        self._policy = hand_ins.Policy(asked.attempts)
        self._rule = attempts.BEST if self._policy is hand_ins.Policy.BEST else asked.regrade
        share = asked.blind_share
        if share is None:
            share = 0.0 if asked.only else BLIND_SHARE
        self._planner = Planner(
            self._folder, self._keys.seeds, like, self._hidden, share,
            every_hand_in=self._policy is hand_ins.Policy.BEST,
        )  # fmt: skip
        self._machines: list[Machine] = []
        self._faults: dict[tuple[str, str], Task] = {}  # by name and files, of all turns
        self._intakes: dict[str, Intake] = {}
        self._current: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # files by student and unit

    def run(self) -> int:
        """Run all steps and return the exit code."""
        roster = rosters.read(self._options.roster) if self._options.roster else rosters.Roster()
        try:
            handed_in = entries.by_student(self._options.submissions, roster)
        except gradescope_export.ExportError as error:
            raise AskedError(str(error)) from None
        each = (one.entries for one in handed_in.found.values())
        turns = hand_ins.turns(each, self._policy)
        for turn in turns:
            intakes = self._collect(handed_in, roster, turn)
            if turn is not None:
                self._say(f"attempt {turn + 1} of those who handed in more than once")
            self._intakes = intakes
            plan = self._plan(intakes, turn)
            if plan.tasks and not self._grade_all(plan, intakes, first=turn == turns[0]):
                return FAULT
        return self._finish(plan)

    def _plan(self, intakes: dict[str, Intake], turn: int | None) -> Plan:
        """Plan the gradings, and settle what earlier commands have graded."""
        planner = self._planner if turn is None else replace(self._planner, blind_share=0.0)
        again = self._options.again and turn is None
        self._set_changed_aside(intakes)
        plan = planner.plan(intakes, self._chosen, again)
        keep_earlier(plan.tasks)
        if again:
            reopen(plan.tasks)
        self._receipts(without_receipt(plan.gradable), intakes)
        for task in plan.gradable:
            self._settle(task)
        return plan

    def _set_changed_aside(self, intakes: Iterable[str]) -> None:
        """Have results that were changed after grading graded again, and say which they are."""
        for student in intakes:
            folder = self._folder.student(student)
            for unit in self._chosen:
                aside = [
                    receipts.set_aside(folder.unit(unit.name, again), self._keys.seals)
                    for again in (False, True)
                ]
                if any(aside):
                    self._say(f"{student}/{unit.name} was changed after it was graded: see changed/ there")

    def _grade_all(self, plan: Plan, intakes: Mapping[str, Intake], first: bool) -> bool:
        """Test the machine before the first gradings, then grade; False if the machine is not all right."""
        token = self._planner.like.token
        with Engine(self._site, self._tier, self._options.jobs, self._folder, token) as engine:
            if first:
                self._say_how_confined()
                self._check_hidden(engine)
                if self._options.self_test and not self._self_test_passes(engine):
                    return False
            self._grade(engine, plan, intakes)
        return True

    def _say_how_confined(self) -> None:
        """Say before the first grading if the workers of this command have no user of their own."""
        missing = probe.why_no_user(assurance.throwaway_user())
        if missing and self._options.command == Task.command:
            self._say(f"the files of students run as the grader's own user, isolation level L1: {missing}")

    def _collect(
        self, handed_in: entries.Sorted, roster: rosters.Roster, turn: int | None
    ) -> dict[str, Intake]:
        """Collect the submissions of the selected students, and list all students in run.json."""
        found, unknown = handed_in.found, handed_in.unknown
        everyone = sorted({*roster.students, *found})
        if not everyone:
            raise AskedError(f"{self._options.submissions}: no submission in this folder")
        unknown_ids = [one for one in self._options.only if one not in everyone]
        if unknown_ids:
            raise AskedError(f"--only {unknown_ids[0]}: no such student; {summary.some(everyone)}")
        intakes = {}
        for student in self._with_partners(found) or everyone:
            own = found.get(student, entries.HandedIn(student))
            intakes[student] = intake.collect(own, roster, self._units, self._folder, self._policy, turn)
        earlier = {path.parent.name for path in self._folder.students.glob("*/intake.json")}
        gone = sorted(earlier - set(everyone))
        self._begin(sorted({*everyone, *earlier}), handed_in, gone)
        if turn is None:
            self._tell(intakes, unknown, gone, handed_in.strays)
        return intakes

    def _with_partners(self, found: Mapping[str, entries.HandedIn]) -> list[str]:
        """Return the students that --only names, and those who handed in together with them."""
        only = set(self._options.only)
        return sorted(only.union(*(found[one].partners for one in only if one in found)))

    def _tell(
        self, intakes: Mapping[str, Intake], unknown: list[str], gone: list[str], strays: list[str]
    ) -> None:
        """Print how many submissions of each kind there are, and what cannot be graded."""
        counts = Counter(one.kind for one in intakes.values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        self._say(f"{len(intakes)} students: {kinds}")
        for words, names in (
            ("not on the roster", unknown),
            ("no longer among the submissions", gone),
            ("files that are nobody's submission", strays),
        ):
            if names:
                self._say(f"{words}: {', '.join(names)}")
        for one in intakes.values():
            if one.problem:
                self._say(f"{one.id} cannot be graded: {one.problem}")

    def _begin(self, students: list[str], handed_in: entries.Sorted, gone: list[str]) -> None:
        """Write run.json; units of earlier commands stay in it."""
        before = self._before
        names = {unit.name for unit in (*(before.units if before else ()), *self._chosen)}
        self._record = RunRecord(
            grader=__version__,
            grader_sha256=fingerprint.grader(),
            began=before.began if before else now(),
            finished=before.finished if before else None,
            tier=self._tier,
            keyword=self._options.keyword,
            hidden_sha256=self._hidden,
            seed_commitment=run_secret.commitment(self._keys.seeds),
            timing_protocol=TIMING_PROTOCOL,
            seal_commitment=self._keys.seal_commitment,
            units=[one.unit for one in self._units if one.unit.name in names],
            students=students,
            unknown=handed_in.unknown,
            strays=handed_in.strays,
            gone=gone,
            machines=before.machines if before else [],
        )
        records.write(self._folder.run, self._record)

    def _check_hidden(self, engine: Engine) -> None:
        """Grade the course's solutions on the hidden cases. Raises AskedError if one does not pass."""
        path = self._options.hidden
        if path is None:
            return
        missing = hidden_check.without_solution(path, self._chosen)
        if missing:
            self._say(f"hidden cases were built, not tried: this checkout has no solution of {missing[0]}")
            return
        known = hidden_check.tasks(self._folder, self._chosen, self._planner.like)
        ended = []
        with Progress(self._console, len(known), "hidden cases") as progress:
            for task, record in engine.grade(known, progress):
                ended.append((task, record))
                progress.done(task.name)
        wrong, need_gpu = hidden_check.failed(path, ended)
        if wrong:
            raise AskedError("\n".join(["hidden cases are not right; nothing was graded", *wrong]))
        if need_gpu:
            self._say(f"{need_gpu} hidden cases need a GPU, and were not tried on a solution")

    def _self_test_passes(self, engine: Engine) -> bool:
        missing = selftest.missing()
        if missing:
            raise AskedError(
                f"the self-test needs {missing[0]}, which a release for students lacks: grade from the "
                "course's own checkout, or skip it with --no-self-test"
            )
        gpus = sites.accelerators(self._site, self._tier, self._options.jobs)
        known = selftest.tasks(self._folder, self._units, self._planner.like, max(1, len(gpus)))
        with Progress(self._console, len(known), "self-test") as progress:
            ended = []
            for task, record in engine.grade([task for task, _ in known], progress):
                ended.append((task, record))
                progress.done(task.student)
        why = "" if self._options.ungated else selftest.no_gate(task for task, _ in ended)
        if why:
            raise AskedError(
                f"--tier gpu: {why}. Without a gate, host code sees what is graded, and speed is not graded; "
                "--ungated grades correctness at level L1"
            )
        found = selftest.judge(ended, {task.student: expected for task, expected in known})
        records.write(self._folder.selftest, found)
        for one in found.known:
            if not one.held:
                expected = " or ".join(one.expected)
                where = f" on GPU {one.accelerator}" if one.accelerator else ""
                self._say(f"SELF-TEST  {one.name}{where} got {one.got}, expected {expected}")
        untested = sorted({*gpus} - {one.accelerator for one in found.known})
        if untested:
            self._say(f"the self-test did not reach GPU {', '.join(untested)}")
        if not found.held:
            self._say("nothing was graded: known files get wrong verdicts on this machine (see make doctor)")
        return found.held

    def _grade(self, engine: Engine, plan: Plan, intakes: Mapping[str, Intake]) -> None:
        with Progress(self._console, len(plan.tasks), "grading") as progress:
            for task, record in engine.grade(plan.tasks, progress):
                self._faults.pop((task.name, task.files_sha256), None)
                if record.state is State.FAULT:
                    self._faults[task.name, task.files_sha256] = task
                if record.state is State.GRADED:
                    self._receipts([task], intakes)
                else:
                    progress.note(f"{task.name}: {record.state.value}, {record.what}")
                self._settle(task)
                progress.done(task.name if not task.blind else task.unit.name)

    def _settle(self, task: Task) -> None:
        """Decide which attempt counts; of blind gradings it is the latest. Partners get the same."""
        unit = unit_folder(task)
        attempts.settle(unit, attempts.LATEST if task.blind else self._rule)
        if task.blind:
            return
        current = self._current[task.student, task.unit.name]
        current.add(task.files_sha256)
        if self._rule == attempts.BEST:
            attempts.withdraw(unit, current)
        for partner in self._intakes[task.student].partners:
            attempts.share(unit, self._folder.student(partner).unit(task.unit.name), task.files_sha256)

    def _receipts(self, tasks: Iterable[Task], intakes: Mapping[str, Intake]) -> None:
        for task in tasks:
            files = fingerprint.files_of(intakes[task.student], task.unit.name)
            machine = receipts.write(task, files, self._hidden, self._keys).machine
            if machine not in self._machines:
                self._machines.append(machine)

    def _finish(self, plan: Plan) -> int:
        """Write drift.json and run.json, print the number of units by state, and return the exit code."""
        self._write_drift(plan)
        machines = [*self._record.machines]
        machines += [machine for machine in self._machines if machine not in machines]
        self._record = self._record.model_copy(update={"finished": now(), "machines": machines})
        records.write(self._folder.run, self._record)
        self._say(summary.states(self._folder, self._record))
        for line in summary.after(plan, self._options.out):
            self._say(line)
        self._say(f"written: {self._options.out}")
        open_ones = [*self._faults.values()]
        open_ones += [
            one for one in plan.gradable if one not in open_ones and summary.state_of(one) is State.FAULT
        ]
        if open_ones:
            names = summary.some(sorted({task.name for task in open_ones}))
            self._say(f"open after a fault of the machine: {names}; run it again")
        return FAULT if open_ones else OK

    def _write_drift(self, plan: Plan) -> None:
        """Write drift.json; what a command for some students graded twice is added to what is there."""
        twice = set(plan.blind)
        if self._options.only and not twice:
            return
        if self._options.only and self._folder.drift.exists():
            regraded = records.read(self._folder.drift, Drift).regraded
            twice.update((student, unit) for student, _, unit in (one.partition("/") for one in regraded))
        records.write(self._folder.drift, agreement.measure(self._folder, twice))

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, markup=False)

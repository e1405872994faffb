"""The pytest plugin: it collects every lab.py as items, one for each case, and reports their verdicts."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader.course import catalog, hidden_cases
from grader.course.items import CODEGEN, SPEED, Item, graded_items
from grader.course.spec import Verdict
from grader.course.tiers import AUTO
from grader.grading.options import CASE, DECLARED, Declaration, Reader, RunOptions
from grader.grading.selection import matches
from grader.judge.run import Run
from grader.report.terminal import explain
from grader.results.outcome import Outcome
from grader.system import gpu, seeds
from grader.system.gpu_lock import NOTE, GpuLock

RUN = pytest.StashKey[Run]()
LOCK = pytest.StashKey[GpuLock]()
ANSWERS = pytest.StashKey[list]()
EXPLAINED = pytest.StashKey[set]()  # the places of answers for which a cause was looked for
OUTCOME = pytest.StashKey[Outcome]()
GPU_MISSING = pytest.StashKey[str]()
PASSED = pytest.StashKey["Passed"]()
HIDDEN = pytest.StashKey[dict]()
PLACES = pytest.StashKey[dict]()
BEGUN = pytest.StashKey[float]()  # when the run began, in seconds of the monotonic clock
START_UP_S = pytest.StashKey[float]()  # seconds from there to its first case, without a wait for the GPU


def pytest_addoption(parser):
    """Add the options of a graded run, and those to shard and resume the project's tests."""
    group = parser.getgroup("grader")
    for name, one in DECLARED.items():
        if one.reader is Reader.PLUGIN:
            group.addoption(one.flag, dest=name, default=one.default, help=one.help, **_kind(one))
    group.addoption(CASE, default="", help="only cases with these sizes, as in n=7,fp32")
    group.addoption("--resume", default=None, metavar="FILE", help="skip tests that passed according to FILE")
    group.addoption(
        "--shard", default=None, metavar="I/N", help="run the I-th of N parts of the selected tests"
    )


def _kind(one: Declaration) -> dict[str, Any]:
    """Return the keyword arguments of argparse for an option's values."""
    if isinstance(one.default, bool):
        return {"action": "store_false"}
    if one.choices:
        return {"choices": one.choices}
    # pytest-xdist passes options on to its processes, and cannot pass a Path.
    return {"type": str if one.read is Path else one.read}


def _asked(config) -> RunOptions:
    """Return the options on pytest's command line."""
    given = {name: config.getoption(name) for name, one in DECLARED.items() if one.reader is Reader.PLUGIN}
    read = {
        name: DECLARED[name].read(text) if isinstance(text, str) else text for name, text in given.items()
    }
    return RunOptions(**read, keyword=config.getoption("keyword"))


def pytest_configure(config):
    """Choose tier and seed, and create the run; UsageError for options that cannot be used."""
    asked, (found, missing) = _asked(config), gpu.find()
    tier, seed = asked.tier, asked.seed
    if tier == AUTO:
        tier = "gpu" if found else "cpu"
    if tier == "gpu" and not found:
        raise pytest.UsageError(f"--tier gpu: {missing}; use --tier cpu to grade what needs no GPU")
    if asked.source != "reference" and not Path(asked.source).is_dir():
        raise pytest.UsageError(f"--from {asked.source}: there is no such folder")
    config.stash[HIDDEN] = _hidden(asked.hidden)
    run = Run(
        asked.source,
        tier,
        seeds.drawn() if seed is None else seed,
        found if tier == "gpu" else None,
        asked.arch,
        screened=asked.screened,
        confined=asked.confined,
    )
    config.stash[RUN], config.stash[ANSWERS], config.stash[GPU_MISSING] = run, [], missing
    config.stash[EXPLAINED] = set()
    config.stash[BEGUN], config.stash[START_UP_S] = time.monotonic(), 0.0
    record = config.getoption("resume")
    if record:
        config.stash[PASSED] = Passed(Path(record))
        # Under xdist, only the main process sees and records all tests.
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(config.stash[PASSED])


def _hidden(file: Path | None) -> dict:
    """Return hidden cases by exercise; none without a file."""
    if file is None:
        return {}
    try:
        return hidden_cases.read_known(file)
    except hidden_cases.HiddenError as error:
        raise pytest.UsageError(f"--hidden {error}") from None


def pytest_report_header(config):
    """Return one line with tier, source and seed, which a second run needs."""
    run = config.stash[RUN]
    return f"grader: tier {run.tier}, grading {run.source}, seed {run.seed}"


def pytest_collect_file(file_path, parent):
    """Collect a lab.py as a lab."""
    if _is_lab(file_path) and not parent.session.isinitpath(file_path):
        return LabFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makemodule(module_path, parent):
    """Collect a lab.py that is named on the command line as a lab, not as a test module."""
    return LabFile.from_parent(parent, path=module_path) if _is_lab(module_path) else None


def _is_lab(path: Path) -> bool:
    return path.name == "lab.py" and catalog.FOLDER.fullmatch(path.parent.name) is not None


def _place(asked: Item) -> tuple[Path, str]:
    """Return what no other item has."""
    return asked.entry.folder, asked.id


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config, items):
    """Put timed shapes last, apply --shard, and deselect the tests that --resume knows as passed.

    Of an exercise's cases those come first that failed before; its answers are in the usual order again.
    While the cases of all labs run, the kernels of the timed shapes are compiled on other cores; and while
    those of one lab do, what its generated code is checked with.
    """
    case = config.getoption(CASE)
    if case:
        unlike = [item for item in items if not matches(case, item.name)]
        items[:] = [item for item in items if matches(case, item.name)]
        config.hook.pytest_deselected(items=unlike)
    failed = config.hook.pytest_grader_failed_before() or ()
    places, exercises = {}, {}
    for place, asked in enumerate(item.asked for item in items if isinstance(item, LabItem)):
        places[_place(asked)] = place
        exercises.setdefault((asked.entry.folder, asked.exercise.name), place)

    def turn(item: pytest.Item) -> tuple[bool, int, bool, int, bool]:
        if not isinstance(item, LabItem):
            return False, 0, False, 0, False
        asked, is_speed = item.asked, item.asked.kind == SPEED
        lab = 0 if is_speed else asked.entry.number  # timed shapes of all labs come last
        exercise = exercises[asked.entry.folder, asked.exercise.name]
        return is_speed, lab, asked.kind == CODEGEN, exercise, asked.id not in failed

    items.sort(key=turn)
    config.stash[PLACES] = places
    shard = config.getoption("shard")
    if shard:
        try:
            part, parts = (int(number) for number in shard.split("/"))
        except ValueError:
            raise pytest.UsageError(f"--shard {shard}: write it as 1/4") from None
        if not 1 <= part <= parts:
            raise pytest.UsageError(f"--shard {shard}: the first number must be from 1 to the second")
        kept = items[part - 1 :: parts]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    if PASSED in config.stash:
        earlier = config.stash[PASSED].earlier
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in earlier])
        items[:] = [item for item in items if item.nodeid not in earlier]


class Passed:
    """Record in a file which tests passed on this version of the code, so that a run can be resumed.

    `earlier` maps the ids of tests that passed in an earlier run to the seconds that each took.
    """

    def __init__(self, record: Path):
        code = sorted(path for tree in ("grader", "labs", "solutions") for path in Path(tree).rglob("*.py"))
        self._digest = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()
        self._record = record
        lines = record.read_text().splitlines() if record.is_file() else []
        known = [line.rpartition("\t") for line in lines[1:]] if lines[:1] == [self._digest] else []
        self.earlier = {test: float(seconds) for test, _, seconds in known}
        self._all = dict(self.earlier)

    def pytest_runtest_logreport(self, report):
        """Record a passed test immediately, because the next one may hang the machine."""
        if report.when == "call" and report.passed:
            self._all[report.nodeid] = round(report.duration, 1)
            self._record.parent.mkdir(parents=True, exist_ok=True)
            tests = [f"{test}\t{seconds}" for test, seconds in sorted(self._all.items())]
            self._record.write_text("\n".join([self._digest, *tests]))


def pytest_collection_finish(session):
    """Start what needs no GPU, so that it overlaps with a wait for the GPU lock; then take the lock."""
    asked = [item.asked for item in session.items if isinstance(item, LabItem)]
    if asked and not session.config.option.collectonly:
        stash, run = session.config.stash, session.config.stash[RUN]
        gc.disable()  # imports make many objects, and none to collect
        run.warm(asked)
        stash[START_UP_S] = time.monotonic() - stash[BEGUN]
        if run.gpu:  # two graders on one GPU would disturb each other's timings
            scratch = os.environ.get("GRADER_SCRATCH")
            stash[LOCK] = GpuLock(run.gpu.uuid_hash, note=Path(scratch) / NOTE if scratch else None)
            stash[LOCK].__enter__()
        locked = time.monotonic()
        run.begin(asked)
        gc.freeze()  # no later collection looks at them
        gc.enable()
        stash[START_UP_S] += time.monotonic() - locked


def pytest_addhooks(pluginmanager):
    """Declare the hooks of the grader."""
    pluginmanager.add_hookspecs(Hooks)


class Hooks:
    """Hooks of the grader itself."""

    @pytest.hookspec(firstresult=True)
    def pytest_grader_failed_before(self):
        """Return the ids of the items that failed in the last run."""

    def pytest_grader_failed(self, item: Item, facts: Sequence[str]):
        """Report an item that has failed, with the lines of its message that no later case changes."""

    def pytest_grader_explaining(self, exercise: str):
        """Report that the cause of an exercise's wrong cases is looked for, which takes seconds."""

    def pytest_grader_explained(self, exercise: str, causes: Sequence[str]):
        """Report causes that were found for an exercise; what was found first comes again with the others."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session):
    """After all items, look for one cause of the wrong cases of each exercise, where that was not done."""
    yield
    stash = session.config.stash
    if stash[ANSWERS]:
        _explain(session.config, [one for one in stash[ANSWERS] if _place(one[0]) not in stash[EXPLAINED]])


def _explain(config, answers):
    """Look for one cause of the wrong cases of each exercise among these answers; put all in their order."""
    stash, hook = config.stash, config.hook
    answers.sort(key=lambda answer: stash[PLACES][_place(answer[0])])
    found = stash[RUN].explained(
        answers,
        lambda name: hook.pytest_grader_explaining(exercise=name),
        lambda name, causes: hook.pytest_grader_explained(exercise=name, causes=causes),
        start_up_s=stash[START_UP_S],
    )
    places = {_place(one[0]) for one in found}
    others = [one for one in stash[ANSWERS] if _place(one[0]) not in places]
    stash[ANSWERS][:] = sorted((*others, *found), key=lambda answer: stash[PLACES][_place(answer[0])])
    stash[EXPLAINED] |= places


def pytest_unconfigure(config):
    """End all processes of the run, and release the GPU lock."""
    if RUN in config.stash:
        config.stash[RUN].close()
    if LOCK in config.stash:
        config.stash[LOCK].__exit__()


class LabFile(pytest.File):
    """One lab.py."""

    def collect(self):
        """Yield one pytest item for each item of the lab."""
        entry = hidden_cases.add(catalog.load(self.path), self.config.stash[HIDDEN])
        for item in graded_items(entry):
            yield LabItem.from_parent(self, name=item.id, item=item)


class LabItem(pytest.Item):
    """A pytest item; it fails with the message for the student, or is skipped if it cannot be graded."""

    def __init__(self, *, item: Item, **more):
        super().__init__(**more)
        self.asked = item
        self.user_properties.append(("max_points", f"{item.points:g}"))

    def runtest(self):
        """Let the judge grade the item; before generated code the wrong cases of its lab are explained."""
        stash, folder = self.config.stash, self.asked.entry.folder
        if self.asked.kind == CODEGEN and stash[RUN].tier == "cpu":
            cases = [one for one in stash[ANSWERS] if one[0].entry.folder == folder]
            if not any(_place(one[0]) in stash[EXPLAINED] for one in cases):
                _explain(self.config, cases)
        start = time.monotonic()
        outcome = self.config.stash[RUN].answer(self.asked)
        self.config.stash[ANSWERS].append((self.asked, outcome, time.monotonic() - start))
        self.stash[OUTCOME] = outcome
        self.user_properties.append(("verdict", outcome.verdict.value))
        if outcome.verdict is Verdict.NOT_GRADED:
            pytest.skip(f"NOT GRADED: {outcome.where}")
        if outcome.verdict is not Verdict.PASS:
            raise NotPassedError(outcome)

    def repr_failure(self, excinfo, style=None):
        """Return the message for the student; a stack trace only for an error in pytest or this plugin."""
        if isinstance(excinfo.value, NotPassedError):
            return "\n".join(explain(self.asked, excinfo.value.outcome))
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Return the location that a test explorer opens: the lab's definition."""
        return self.path, None, self.name


class NotPassedError(Exception):
    """An outcome other than PASS, on its way from the judge to the report."""

    def __init__(self, outcome: Outcome):
        super().__init__(outcome.verdict.value)
        self.outcome = outcome


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the verdict to the report, for pytest_report_teststatus.

    An item that pytest itself could not run is the grader's fault: without an answer its points would be
    missing from the total, and nobody would see it.
    """
    report = (yield).get_result()
    if not isinstance(item, LabItem):
        return
    if report.failed and OUTCOME not in item.stash:
        fault = call.excinfo.type.__name__
        last = call.excinfo.traceback[-1]
        place = f"{last.path.name if isinstance(last.path, Path) else last.path}:{last.lineno + 1}"
        words = f"pytest could not run this item: {fault}: {call.excinfo.value} ({place})"
        item.stash[OUTCOME] = Outcome(Verdict.GRADER_FAULT, where=words, fault=fault)
        item.config.stash[ANSWERS].append((item.asked, item.stash[OUTCOME], call.duration))
    if call.when == "call" and OUTCOME in item.stash:
        outcome = item.stash[OUTCOME]
        report.verdict = outcome.verdict.value
        # Not in `runtest`, of which pytest captures what is printed.
        if outcome.verdict not in (Verdict.PASS, Verdict.NOT_GRADED, Verdict.NOT_STARTED):
            facts = explain(item.asked, replace(outcome, cause="", hint=None))
            item.config.hook.pytest_grader_failed(item=item.asked, facts=facts)


def pytest_report_teststatus(report):
    """Show the verdict instead of passed, failed or skipped."""
    verdict = getattr(report, "verdict", None)
    if verdict is None or report.when != "call":
        return None
    letter = {"PASS": ".", "NOT_GRADED": "-", "NOT_STARTED": "n", "SLOW": "s"}.get(verdict, "F")
    return report.outcome, letter, verdict.replace("_", " ")

"""What the tests of the grader share: one run that grades texts, and the command line on a copied course."""

import dataclasses
import datetime
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from grader import catalog, gpu
from grader.gpu_lock import GpuLock
from grader.plugin import PASSED
from grader.questions import Question, questions
from grader.run import Run
from grader.session import Session

ROOT = Path(__file__).resolve().parents[2]
SEED = 20240229
OWN_OPTIONS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")


class Submissions:
    """Grades texts as the student's file of a lab, on the CPU tier, unscreened; one run serves them all."""

    def __init__(self, folder: Path, session: Session):
        self.run = Run(folder, "cpu", SEED, None, screened=False, session=session)
        self.asked: dict[str, Question] = {}  # of the last text, by id
        self._folder, self._count = folder, 0
        self._labs = {entry.number: entry for entry in catalog.find()}

    def grade(self, number: int, text: str | bytes | None, *cases: str, limit_s: float = 20.0):
        """Outcomes by question id for the named cases, `elementwise_add/n=7,fp32`; None is a missing file."""
        entry, exercises = self._labs[number], []
        for exercise in entry.lab.exercises:
            chosen = tuple(
                dataclasses.replace(case, limit_s=limit_s)
                for case in exercise.cases
                if f"{exercise.name}/{case.name}" in cases
            )
            if chosen:
                exercises.append(dataclasses.replace(exercise, cases=chosen, speed=None, codegen=None))
        assert sum(len(exercise.cases) for exercise in exercises) == len(cases) > 0, "a case has another name"
        self._count += 1
        lab = dataclasses.replace(entry.lab, exercises=tuple(exercises))
        entry = catalog.Entry(Path(f"lab{number}_text{self._count}"), number, lab)
        file = entry.submission(self._folder, exercises[0])
        file.parent.mkdir()
        if text is not None:
            file.write_bytes(text.encode() if isinstance(text, str) else text)
        self.asked = {question.id: question for question in questions(entry)}
        return {name: self.run.answer(question) for name, question in self.asked.items()}


@pytest.fixture(scope="session")
def warm():
    """The session of all tests that grade a file on the CPU and look at nothing else in it: one more would
    import all again.
    """
    session = Session("cpu", SEED)
    yield session
    session.close()
    assert not session.folder.exists()


@pytest.fixture(scope="session")
def submissions(tmp_path_factory, warm):
    found = Submissions(tmp_path_factory.mktemp("submissions"), warm)
    yield found
    found.run.close()


def plain_environment(**more: str) -> dict[str, str]:
    """The environment without what could change a report."""
    return {name: value for name, value in os.environ.items() if name not in OWN_OPTIONS} | more


def python(*arguments: object, root: Path = ROOT, **more: str) -> subprocess.CompletedProcess:
    """Python with these arguments in the folder of a course, `root`; `more` goes into its environment."""
    command = [sys.executable, "-B", *map(str, arguments)]
    return subprocess.run(
        command, cwd=root, env=plain_environment(**more), capture_output=True, timeout=240, check=False,
        encoding="utf-8", errors="replace",
    )  # fmt: skip


def grade(*arguments: object, **more) -> subprocess.CompletedProcess:
    """`python -m grader grade` with these arguments, on the CPU tier unless they say otherwise."""
    tier = [] if "--tier" in arguments else ["--tier", "cpu"]
    return python("-m", "grader", "grade", "--seed", SEED, *tier, *arguments, **more)


def copy_course(target: Path) -> Path:
    """The repository's grader, labs, capstone and solutions in another folder."""
    for name in ("grader", "labs", "gpu-programming", "solutions"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    shutil.copyfile(ROOT / "pyproject.toml", target / "pyproject.toml")
    return target


def solution(number: int) -> str:
    """The text of a lab's solution."""
    (path,) = ROOT.glob(f"solutions/lab{number}_*/*.py")
    return path.read_text("utf-8")


def swap(text: str, *pairs: str) -> str:
    """The text with each `old` replaced by the `new` that follows it; every `old` must stand there."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text, f"the solution no longer holds {old!r}"
        text = text.replace(old, new)
    return text


def pytest_collection_modifyitems(items):
    """What takes time on a GPU, or a whole GPU, comes last: several processes run the others side by side."""
    items.sort(key=lambda item: item.get_closest_marker("whole_gpu") is not None)
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.timeout(300, func_only=True))  # waiting for the GPU does not count


@pytest.fixture(autouse=True)
def _turn(request):
    """A turn on the GPU: alone on it where the test says so, else beside others like it."""
    found, _ = gpu.find() if request.node.get_closest_marker("gpu") else (None, "")
    if not found:
        yield
        return
    with GpuLock(found.uuid_hash, shared=request.node.get_closest_marker("whole_gpu") is None):
        yield


def pytest_terminal_summary(terminalreporter, config):
    """How many specimens of each corpus got their verdict; the record of it goes where the reports go."""
    earlier = config.stash[PASSED].earlier if PASSED in config.stash else {}
    corpora = tally(terminalreporter, earlier)
    found, _ = gpu.find()
    if corpora:
        terminalreporter.section("corpora")
        for name, one in corpora.items():
            terminalreporter.write_line(f"{name}: {one['held']}/{one['of']}")
        keep(config, f"corpora-{'gpu' if found else 'cpu'}", corpora=corpora)
    recovery = [
        value
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == "recovery"
    ]
    if recovery:
        keep(config, "recovery", recovery=recovery)


def keep(config, name: str, **figures) -> None:
    """Write a record of tests with the machine it was made on."""
    found, _ = gpu.find()
    card = f"{found.name}, driver {found.driver}" if found else "no GPU"
    versions = f"torch {version('torch')}, triton {version('triton')}"
    today = datetime.datetime.now(datetime.timezone.utc).date()
    record = {"machine": f"{card}, {versions}, {today}", **figures}
    folder = config.rootpath / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1))


def tally(terminalreporter, earlier: dict[str, float]) -> dict[str, dict]:
    """For each corpus: how many specimens held, of how many that ran, and the seconds of the slowest; those
    that passed `earlier` on this code, in a run that this one goes on with, are of them.
    """
    found: dict[str, dict] = {}
    ran = [
        (report.nodeid, report.duration, outcome == "passed")
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
    ]
    for test, seconds, held in [*ran, *((test, seconds, True) for test, seconds in earlier.items())]:
        name = corpus_of(test)
        if name:
            one = found.setdefault(name, {"held": 0, "of": 0, "slowest_s": 0.0})
            one["held"] += held
            one["of"] += 1
            one["slowest_s"] = max(one["slowest_s"], round(seconds, 1))
    return dict(sorted(found.items()))


def corpus_of(nodeid: str) -> str:
    """Which line of the summary a test belongs to; empty for one that is no specimen."""
    if "test_corpora.py" not in nodeid:
        return ""
    screen = "static screen off" if "unscreened" in nodeid else "static screen on"
    if "/cheats/" in nodeid:
        return (
            f"benign twins passed, {screen}"
            if "_twin" in nodeid
            else f"cheats caught, exact verdict, {screen}"
        )
    if "/faults/" in nodeid:
        return "faults with their verdict"
    if "/variants/" in nodeid:
        return "honest variants without a flag"
    return "student bugs, named check and hint" if "/wrong/" in nodeid else ""


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium that talks to nobody."""
    from grader.figures.screenshots import NoBrowserError, chromium

    try:
        with chromium() as found:
            yield found
    except NoBrowserError as error:
        pytest.fail(str(error), pytrace=False)

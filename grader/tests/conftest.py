"""Fixtures that several rooms use, turns on the GPU, and the counts of specimens at the end of a run."""

import os

import pytest

from grader.grading.plugin import PASSED
from grader.system import gpu, standby
from grader.system.gpu_lock import GpuLock
from grader.tests.helpers.corpus_counts import in_all, keep, ran, specimens_by_test, tally
from grader.tests.helpers.course import SEED
from grader.tests.helpers.submissions import Submissions
from grader.worker.session import Session

os.environ.setdefault(standby.SWITCH, "0")  # tests on a terminal would leave processes behind

COLLECTED = pytest.StashKey[dict]()  # specimens that were found, before options left some out


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


@pytest.hookimpl(tryfirst=True)  # before options leave tests out
def pytest_collection_modifyitems(config, items):
    """What takes time on a GPU, or a whole GPU, comes last: several processes run the others side by side."""
    config.stash[COLLECTED] = specimens_by_test(item.nodeid for item in items)
    items.sort(key=lambda item: item.get_closest_marker("whole_gpu") is not None)
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.timeout(300, func_only=True))  # waiting for the GPU does not count


def pytest_sessionfinish(session):
    """A process that ran tests says how many specimens it found: the one that reports has collected none."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["specimens"] = session.config.stash.get(COLLECTED, {})


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node):
    """Take what the process said, unless it crashed: each has found the same."""
    if hasattr(node, "workeroutput"):
        node.config.stash[COLLECTED] = node.workeroutput["specimens"]


@pytest.fixture(autouse=True)
def _turn(request):
    """A turn on the GPU: alone on it where the test says so, else beside others like it.

    A test that runs the grader as a command, `gpu(command=True)`, holds no lock: the command takes it.
    """
    marker = request.node.get_closest_marker("gpu")
    found, _ = gpu.find() if marker and not marker.kwargs.get("command") else (None, "")
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
        tests = [*earlier, *(test for test, *_ in ran(terminalreporter))]
        every = in_all(config.stash.get(COLLECTED, {}), tests)
        terminalreporter.section("corpora")
        for name, one in corpora.items():
            of_all = f", {every[name]} in all" if every[name] > one["of"] else ""
            terminalreporter.write_line(f"{name}: {one['held']}/{one['of']}{of_all}")
        if found or all(one["of"] >= every[name] for name, one in corpora.items()):
            keep(config, f"corpora-{'gpu' if found else 'cpu'}", corpora=corpora)
    recovery = [
        value
        for report in terminalreporter.stats.get("passed", [])
        for name, value in report.user_properties
        if name == "recovery"
    ]
    if recovery:
        keep(config, "recovery", recovery=recovery)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium that talks to nobody."""
    from grader.site.figures.screenshots import NoBrowserError, chromium

    try:
        with chromium() as found:
            yield found
    except NoBrowserError as error:
        pytest.fail(str(error), pytrace=False)

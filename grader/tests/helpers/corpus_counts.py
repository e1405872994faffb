"""How many specimens of each corpus got their verdict in a run of the tests, and records of such runs."""

import datetime
import json
from collections.abc import Iterable
from importlib.metadata import version

from grader.system import gpu


def ran(terminalreporter) -> list[tuple[str, float, bool]]:
    """Each test that was called: its id, its seconds, and whether it passed."""
    return [
        (report.nodeid, report.duration, outcome == "passed")
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
    ]


def tally(terminalreporter, earlier: dict[str, float]) -> dict[str, dict]:
    """For each corpus: how many specimens held, of how many that ran, and the seconds of the slowest; those
    that passed `earlier` on this code, in a run that this one goes on with, are of them.
    """
    found: dict[str, dict] = {}
    for test, seconds, held in [*ran(terminalreporter), *((test, s, True) for test, s in earlier.items())]:
        name = corpus_of(test)
        if name:
            one = found.setdefault(name, {"held": 0, "of": 0, "slowest_s": 0.0})
            one["held"] += held
            one["of"] += 1
            one["slowest_s"] = max(one["slowest_s"], round(seconds, 1))
    return dict(sorted(found.items()))


def specimens_by_test(nodeids: Iterable[str]) -> dict[str, dict[str, int]]:
    """For each corpus: how many specimens each test function has among these tests."""
    found: dict[str, dict[str, int]] = {}
    for nodeid in nodeids:
        name, function = corpus_of(nodeid), nodeid.partition("[")[0]
        if name:
            one = found.setdefault(name, {})
            one[function] = one.get(function, 0) + 1
    return found


def in_all(collected: dict[str, dict[str, int]], nodeids: Iterable[str]) -> dict[str, int]:
    """For each corpus: how many specimens were collected for the test functions that ran any."""
    return {
        name: sum(collected.get(name, {}).get(function, 0) for function in functions)
        for name, functions in specimens_by_test(nodeids).items()
    }


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
    if "/variants/" in nodeid and "-refused" not in nodeid:
        return "honest variants without a flag"
    return "student bugs, named check and hint" if "/wrong/" in nodeid or "-refused" in nodeid else ""


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

"""On a CPU the wrong cases of a lab are explained before its generated code is checked."""

from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.spec import Verdict
from grader.grading import plugin
from grader.results.outcome import Outcome


def items(kind, number):
    entry = next(one for one in catalog.find() if one.number == 1)
    return [one for one in graded_items(entry) if one.kind == kind][:number]


@pytest.mark.parametrize(("tier", "explained"), [("cpu", [2, 1]), ("gpu", [3])])
def test_cases_are_explained_once_and_before_generated_code_on_a_cpu(tier, explained):
    cases, generated = items(CORRECTNESS, 2), items(CODEGEN, 1)
    given = []

    def explain(answers, *_, **__):
        given.append([item.id for item, _, _ in answers])
        return [(item, outcome, seconds) for item, outcome, seconds in answers]

    run = SimpleNamespace(tier=tier, explained=explain, answer=lambda _: Outcome(Verdict.PASS))
    asked = [*cases, *generated]
    stash = pytest.Stash()
    stash[plugin.RUN], stash[plugin.ANSWERS], stash[plugin.EXPLAINED] = run, [], set()
    stash[plugin.START_UP_S] = 0.0
    stash[plugin.PLACES] = {plugin._place(item): at for at, item in enumerate(asked)}
    config = SimpleNamespace(stash=stash, hook=SimpleNamespace())
    for item in asked:
        one = plugin.LabItem.__new__(plugin.LabItem)
        one.config, one.asked, one.stash, one.user_properties = config, item, pytest.Stash(), []
        one.runtest()
    loop = plugin.pytest_runtestloop(SimpleNamespace(config=config))
    next(loop)
    assert next(loop, None) is None
    assert [len(one) for one in given] == explained
    assert [item for item, _, _ in stash[plugin.ANSWERS]] == asked
    assert sorted(name for names in given for name in names) == sorted(item.id for item in asked)

"""How long a run takes to start is measured, because the search for causes has so much less time."""

import time
from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import graded_items
from grader.grading import plugin

WAIT_S, WARM_S, BEGIN_S = 0.5, 0.06, 0.05


class SlowLock:
    """A lock of the GPU that another run holds for a while."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        time.sleep(WAIT_S)


@pytest.mark.parametrize("gpu", [None, SimpleNamespace(uuid_hash="a")])
def test_the_start_is_measured_without_the_wait_for_the_gpu(monkeypatch, gpu):
    monkeypatch.setattr(plugin, "GpuLock", SlowLock)
    run = SimpleNamespace(gpu=gpu, warm=lambda _: time.sleep(WARM_S), begin=lambda _: time.sleep(BEGIN_S))
    entry = next(one for one in catalog.find() if one.number == 1)
    item = plugin.LabItem.__new__(plugin.LabItem)
    item.asked = next(iter(graded_items(entry)))
    stash = pytest.Stash()
    stash[plugin.RUN], stash[plugin.BEGUN], stash[plugin.START_UP_S] = run, time.monotonic(), 0.0
    config = SimpleNamespace(stash=stash, option=SimpleNamespace(collectonly=False))
    plugin.pytest_collection_finish(SimpleNamespace(config=config, items=[item]))
    assert WARM_S + BEGIN_S <= stash[plugin.START_UP_S] < WAIT_S

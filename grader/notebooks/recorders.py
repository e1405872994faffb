"""All recorders by name; one that is added here is recorded by `python -m grader notebooks --record`."""

from __future__ import annotations

from functools import partial

from grader.notebooks import autotuning, ncu_page, recorded_apart
from grader.notebooks.lessons import Recorder

RECORDERS = (
    Recorder("autotuning trace", autotuning.trace),
    Recorder("search space", autotuning.search_space),
    Recorder("torch profiler", partial(recorded_apart.ask, "grader.notebooks.torch_profiler")),
    Recorder("proton", partial(recorded_apart.ask, "grader.notebooks.proton_session")),
    Recorder("ncu", ncu_page.record),
    Recorder("training step", partial(recorded_apart.ask, "grader.notebooks.training_step")),
)

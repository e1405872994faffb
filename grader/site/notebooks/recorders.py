"""All recorders by name; `python -m grader notebooks --record` runs those listed here."""

from __future__ import annotations

from functools import partial

from grader.site.notebooks import autotuning, ncu_page, recorded_apart
from grader.site.notebooks.lessons import Recorder

RECORDERS = (
    Recorder("autotuning trace", autotuning.trace),
    Recorder("search space", autotuning.search_space),
    Recorder("torch profiler", partial(recorded_apart.ask, "grader.site.notebooks.torch_profiler")),
    Recorder("proton", partial(recorded_apart.ask, "grader.site.notebooks.proton_session")),
    Recorder("ncu", ncu_page.record),
    Recorder("training step", partial(recorded_apart.ask, "grader.site.notebooks.training_step")),
)

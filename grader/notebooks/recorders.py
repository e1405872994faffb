"""All recorders by name; one that is added here is recorded by `python -m grader notebooks --record`."""

from __future__ import annotations

from grader.notebooks import autotuning
from grader.notebooks.lessons import Recorder

RECORDERS = (
    Recorder("autotuning trace", autotuning.trace),
    Recorder("search space", autotuning.search_space),
)

"""The process in which grader.site.figures.trace interprets launches: JSON in, JSON out.

It needs TRITON_INTERPRET=1 in its environment before triton is imported.
"""

from __future__ import annotations

import json
import sys

import torch

from grader.course import catalog
from grader.measure.bench.run import load
from grader.site.figures.watcher import Watcher, watch_builder

ROOM = 4096  # elements on each side of a buffer


def interpret(launch: dict) -> list[list[dict]]:
    """Run a launch and return the steps of each of its programs."""
    kernel = getattr(load(catalog.ROOT / "solutions" / launch["file"]), launch["kernel"])
    while hasattr(kernel, "configs"):
        kernel = kernel.fn  # without the autotuner, which would launch the kernel many times
    given = launch["arguments"]
    buffers = {name: _buffer(value) for name, value in given.items() if isinstance(value, dict)}
    watcher = Watcher(kernel.fn, buffers)
    watch_builder(watcher)
    sys.settrace(watcher.called)
    try:
        kernel[(launch["programs"],)](**given | buffers, **launch["constants"])
    finally:
        sys.settrace(None)
    return watcher.programs


def _buffer(given: dict) -> torch.Tensor:
    """Return a buffer with free space on both sides, so an address past its end still identifies it."""
    values = [float("nan") if one is None else one for one in given["values"]]
    room = torch.zeros(len(values) + 2 * ROOM, dtype=getattr(torch, given["dtype"]))
    room[ROOM : ROOM + len(values)] = torch.tensor(values)
    return room[ROOM : ROOM + len(values)]


if __name__ == "__main__":
    json.dump([interpret(launch) for launch in json.load(sys.stdin)], sys.stdout)

"""Say what a worker waits for at a shut gate, from the stacks that it has printed.

The stacks come from the worker, so they are shown and decide nothing: whatever waits has no points.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from grader.course.spec import Reason, Verdict
from grader.results.findings import Frame
from grader.results.outcome import Outcome

FRAME = re.compile(r'^\s*File "([^"\n]*)", line (\d{1,7}) in (.*)$')
MOST_LAUNCHES = 1000  # that a stream of today's drivers queues; about 1020 on an H200

# What is on the stack between the student's line and the wait: part of a path, or a function. In this order.
KINDS: tuple[tuple[Collection[str], Collection[str], Reason, str], ...] = (
    ((), ("_bench", "do_bench"), Reason.HOST_WAIT, "an autotuned kernel times its configs again"),
    (("triton/compiler/",), (), Reason.HOST_WAIT, "a kernel is compiled or loaded in this call again"),
    ((), ("synchronize", "wait"), Reason.HOST_WAIT, "host code waits until the GPU has finished"),
    (
        ("triton/runtime/jit.py", "triton/backends/", "nvcc.py"),
        (),
        Reason.HOST_WAIT,
        f"the GPU's queue is full: it holds about {MOST_LAUNCHES} launches",
    ),
)
READ = "host code reads a result of the GPU, or has queued too much work for it"


class _Line(NamedTuple):
    path: str
    number: int
    function: str


def explained(stacks: str, files: Mapping[str, str]) -> Outcome:
    """Return the POLICY outcome for what waits; `files` are the student's texts by name of the file."""
    lines: list[_Line] = []
    own = -1
    for thread in re.split(r"^(?=.*\(most recent call first\))", stacks, flags=re.MULTILINE):
        matches = (FRAME.match(text) for text in thread.splitlines())
        lines = [_Line(found[1], int(found[2]), found[3]) for found in matches if found]
        own = next((at for at, line in enumerate(lines) if Path(line.path).name in files), -1)
        if own >= 0:
            break
    if own < 0:
        return Outcome(Verdict.POLICY, Reason.HOST_WAIT, where="the call waits for the GPU")
    reason, what = Reason.HOST_READ, READ
    between = lines[:own]
    for paths, functions, why, words in KINDS:
        if any(any(part in one.path for part in paths) or one.function in functions for one in between):
            reason, what = why, words
            break
    line = lines[own]
    texts = files[Path(line.path).name].splitlines()
    code = texts[line.number - 1].strip() if 0 < line.number <= len(texts) else ""
    frame = Frame(line=line.number, function=line.function, code=code)
    return Outcome(
        Verdict.POLICY, reason, where=f"line {line.number} waits for the GPU: {what}", frames=(frame,)
    )

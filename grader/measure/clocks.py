"""The clocks of a GPU while it was measured, as the records of the survey and the benchmarks keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from grader.judge.statistics import spread
from grader.results.records import Model, Words

# Limits far from any GPU: arithmetic on a student's numbers must not overflow.
Spread = Annotated[list[Annotated[float, Field(ge=0.0, le=1e20)]], Field(max_length=3)]


class Clocks(Model, allow_inf_nan=False):
    """Lowest, median and highest reading after the rounds; `unread` says what NVML does not report."""

    sm_mhz: Spread = []
    watts: Spread = []
    celsius: Spread = []
    reasons: Annotated[list[Words], Field(max_length=20)] = []
    unread: Words = ""


def summary(
    sm_mhz: Sequence[float],
    watts: Sequence[float],
    celsius: Sequence[float],
    reasons: Iterable[str],
    unread: str,
) -> Clocks:
    """The record of all readings: MHz, watts, degrees Celsius, active clock reasons, what was not read."""
    return Clocks(
        sm_mhz=spread(sm_mhz),
        watts=spread(watts),
        celsius=spread(celsius),
        reasons=sorted(set(reasons)),
        unread=unread[:300],
    )

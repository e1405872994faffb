"""The record of `make bench`: its model, and figures computed from the raw rounds of several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from grader.judge import statistics
from grader.measure.clocks import Clocks, summary
from grader.results.records import Measurement, Model

AGAIN = ", again"
PROTOCOL = (
    "N(0, 1) inputs, to which a sum adds 0.5; buffers rotate past 256 MB; results poisoned with NaN before "
    "each block, those of the last round checked against fp64; all arms of a size in one process, in turn, "
    "order reversed every other round; below 100 us a call a CUDA graph over the buffers is timed; a ratio "
    "is baseline over arm within one round, of which the median over all processes is given with a 95 % "
    "order-statistic interval; the backward passes of PyTorch and Liger get saved statistics"
)


class ArmRecord(Model):
    """One arm at one size; it has figures only if its results are right and not impossibly fast."""

    status: str  # ok, wrong, failed, not installed, missing, impossible
    reason: str = ""
    median_us: float | None = None
    rate: float | None = None  # in the unit of the operation
    ratio: float | None = None  # 2.0 is twice as fast as the baseline
    interval: tuple[float, float] | None = None
    percent_of_copy: float | None = None  # of the rate of a copy of equal bytes, round by round
    percent_of_limit: float | None = None  # of peak bandwidth or of dense peak FLOP/s
    eager_us: float | None = None  # including the launch, if a graph was timed
    rounds_us: list[list[float]] = []  # microseconds of a call, by process
    clocks: Clocks = Clocks()

    @property
    def all_rounds_us(self) -> list[float]:
        """Return the rounds of all processes, one after the other."""
        return [us for process in self.rounds_us for us in process]


class SizeRecord(Model):
    """One size of one operation."""

    size: dict[str, int]
    bytes_moved: int
    operations: int
    method: str  # graph or eager
    slots: int  # buffer sets that rotate
    working_set_bytes: int
    rounds_dropped: int  # repeated because the GPU was throttled
    baseline: str = ""
    arms: dict[str, ArmRecord]
    configs: dict[str, dict[str, str]] = {}  # chosen by autotuned kernels, by arm

    @property
    def ours(self) -> dict[str, ArmRecord]:
        """Return our arms, one for each layout, by name."""
        return {name: arm for name, arm in self.arms.items() if is_ours(name)}

    @property
    def fastest_us(self) -> float | None:
        """Return the median of our fastest arm; None if none of ours has a time."""
        return min((arm.median_us for arm in self.ours.values() if arm.median_us), default=None)


class OpRecord(Model):
    """One operation, the hash of the file it was read from, and what went wrong in its processes."""

    name: str
    dtype: str
    unit: str
    file: str
    file_sha256: str
    sizes: list[SizeRecord] = []
    troubles: list[str] = []


class BenchRecord(Measurement):
    """One run of `make bench`."""

    made_by: ClassVar[str] = "make bench"

    protocol: str = PROTOCOL
    processes: int
    liger: str | None
    skipped: list[str] = []
    ops: list[OpRecord] = []


def is_ours(arm: str) -> bool:
    """Return whether an arm, such as "ours NT", is of the file that was measured and not of a peer."""
    return arm.split()[:1] == ["ours"]


def size_text(size: Mapping[str, int]) -> str:
    """Format a size for tables: "rows=32768, cols=4096"."""
    return ", ".join(f"{side}={count}" for side, count in size.items())


def summarise(op, results: Sequence[dict], peaks: tuple[float, float]) -> SizeRecord:
    """Join the results of all processes for one size; `peaks` are bytes/s and FLOP/s, 0 if unknown."""
    size, first = results[0]["size"], results[0]
    arms = {name: _pool([one["arms"][name] for one in results]) for name in first["arms"]}
    least = statistics.floor_us(op.bytes_moved(size), op.flops(size), *peaks)
    for arm in arms.values():
        if arm.status == "ok" and statistics.median(arm.all_rounds_us) < least:
            arm.status, arm.reason = "impossible", f"faster than the {least:.1f} us that this GPU needs"
    sound = {name: arm for name, arm in arms.items() if arm.status == "ok"}
    best = min(
        (name for name in op.baselines if name in sound),
        key=lambda n: statistics.median(arms[n].all_rounds_us),
        default="",
    )
    work = op.flops(size) or op.bytes_moved(size)
    for name, arm in sound.items():
        arm.median_us = statistics.median(arm.all_rounds_us)
        arm.rate = work / arm.median_us / 1e6
        base = op.baselines[0] if name.endswith(AGAIN) else best
        if base in sound:
            ratios = _ratios(sound[base], arm)
            arm.ratio, arm.interval = statistics.median(ratios), statistics.interval(ratios)
        if "copy" in sound:
            arm.percent_of_copy = 100 * statistics.median(_ratios(sound["copy"], arm))
        arm.percent_of_limit = 100 * least / arm.median_us if least else None
    return SizeRecord(
        size=size,
        bytes_moved=op.bytes_moved(size),
        operations=op.operations(size),
        method=" and ".join(sorted({one["method"] for one in results})),
        slots=first["slots"],
        working_set_bytes=first["working_set_bytes"],
        rounds_dropped=sum(one["rounds_dropped"] for one in results),
        baseline=best,
        arms=arms,
        configs=first["configs"],
    )


def _pool(results: Sequence[dict]) -> ArmRecord:
    """Join one arm of all processes; if it failed in one of them it has no figures."""
    bad = next((one for one in results if one["status"] != "ok"), None)
    if bad:
        return ArmRecord(status=bad["status"], reason=bad["reason"])
    eager = [one["eager_us"] for one in results if one["eager_us"] is not None]
    read = [one["clocks"] for one in results]
    return ArmRecord(
        status="ok",
        eager_us=statistics.median(eager) if eager else None,
        rounds_us=[one["rounds_us"] for one in results],
        clocks=summary(
            *(
                [value for one in read for value in one[key]]
                for key in ("sm_mhz", "watts", "celsius", "reasons")
            ),
            unread=read[0]["unread"],
        ),
    )


def _ratios(base: ArmRecord, arm: ArmRecord) -> list[float]:
    """Return base over arm, round by round: a disturbance of a round slows both."""
    return [b / a for b, a in zip(base.all_rounds_us, arm.all_rounds_us, strict=True)]

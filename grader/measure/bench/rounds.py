"""Time the arms of one operation and size in turn on one device, check their results, and keep every round.

The clock is a parameter: CUDA events on a GPU, the host's clock or a list of numbers in a test.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from grader.judge import statistics
from grader.measure.bench.ladder import MissingError
from grader.measure.bench.ops import Op, Size, slots_of
from grader.measure.bench.peers import COPY, Call, Peer, Tensors
from grader.measure.bench.record import AGAIN
from grader.system.gpu import ClockReader

GRAPH_BELOW_US = 100.0  # with shorter calls the launch overhead would be measured
EAGER_ROUNDS = 5
WARM_US = 50_000.0
ROUNDINGS = 4  # units of the dtype at the value plus the rms of its row: peers round intermediate values, too
SEED = 20240229


@dataclass(frozen=True)
class Plan:
    """How long to measure: rounds of a process, microseconds of a block, bytes that a pass moves at least."""

    rounds: int = 15
    block_us: float = 15_000.0
    working_set: int = 2**28


QUICK = Plan(rounds=7)


class CudaClock:
    """Microseconds between two CUDA events; short calls are captured into a graph."""

    def __init__(self):
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_us(self, work: Callable[[], None]) -> float:
        """Time the work that `work` puts on the stream, in microseconds."""
        self._start.record()
        work()
        self._end.record()
        self._end.synchronize()
        return 1e3 * self._start.elapsed_time(self._end)

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture `work` as one CUDA graph; return its replay."""
        torch.cuda.synchronize()
        captured, stream, broken_by = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), None
        try:
            with torch.cuda.graph(captured):
                try:
                    work()
                except Exception as error:
                    broken_by = error
                    raise
        except Exception as error:
            # A broken capture leaves its stream current, and its own error hides the one that broke it.
            torch.cuda.set_stream(stream)
            raise (broken_by or error) from None
        return captured.replay


@dataclass(eq=False)
class Lane:
    """One arm with its calls, one for each buffer set, and what was measured."""

    name: str
    kept: list[tuple]  # results by buffer set; new tensors are kept for a pass, so that they rotate, too
    expected: list[tuple]
    calls: list[Call] = field(default_factory=list)
    play: Callable[[], None] | None = None  # one pass over all buffer sets
    status: str = "ok"
    reason: str = ""
    call_us: float = 0.0
    eager_us: float | None = None
    rounds: list[float] = field(default_factory=list)  # microseconds of a call
    clocks: ClockReader = field(default_factory=ClockReader)

    def once(self) -> None:
        """Call it once on each buffer set."""
        for i, call in enumerate(self.calls):
            self.kept[i] = call()

    def drop(self, status: str, reason: str) -> None:
        """Exclude this arm from measurement, store why, and free what it holds."""
        self.status, self.reason = status, reason
        self.calls, self.kept, self.play, self.eager_us = [], [], None, None


def in_order(lanes: Sequence, number: int) -> list:
    """Return the arms in the order of round `number`: every other round is reversed, A B then B A."""
    return list(lanes if number % 2 == 0 else reversed(lanes))


def differs(got: Sequence, expected: Sequence, dtype: torch.dtype, allowed: Sequence | None = None) -> str:
    """Say which result differs from fp64 by more than a few roundings; empty if none does. NaN differs.

    `allowed`, if given, is the permitted error of each result.
    """
    for number, (mine, right) in enumerate(zip(got, expected, strict=True)):
        if mine.shape != right.shape:
            return f"result {number} has the wrong shape {tuple(mine.shape)}"
        most = allowed[number] if allowed else _roundings(right, dtype)
        bad = right.numel() - int(((mine.double() - right).abs_() <= most).sum())
        if bad:
            return f"{bad} of {right.numel()} elements of result {number} are wrong"
    return ""


def _roundings(right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    rms = right.square().mean(-1, keepdim=True).sqrt_()
    return (right.abs() + rms).mul_(ROUNDINGS * torch.finfo(dtype).eps)


def measure(
    op: Op, size: Size, ours: Sequence[Peer], clock, plan: Plan, device: str, shuffle: int = 0
) -> dict:
    """Measure every arm of one size: microseconds of a call in each round, or why there are none."""
    slots = [_slot(op, size, device, number) for number in range(slots_of(op, size, plan.working_set))]
    expected = [op.expected(tensors) for tensors in slots]
    arms = _arms(op, ours)
    lanes = [_lane(op, size, arm, slots, expected) for arm in arms]
    shuffled = list(lanes)
    random.Random(shuffle).shuffle(shuffled)

    def look(lane):
        found = next(filter(None, (_mistake(op, slots[i], lane, i) for i in range(len(slots)))), "")
        if found:
            lane.drop("wrong", found)

    def sound():
        return [lane for lane in shuffled if lane.status == "ok"]

    for lane in sound():
        with _reporting(lane):
            _warm(lane, clock)
            look(lane)
    graphed = clock.graph is not None and any(lane.call_us < GRAPH_BELOW_US for lane in sound())
    if graphed:
        eager, _ = take_rounds(sound(), EAGER_ROUNDS, clock, plan.block_us)
        for lane in sound():
            lane.eager_us = statistics.median([one[lane.name] for one in eager])
            with _reporting(lane):
                lane.play = clock.graph(lane.once)
                _warm(lane, clock)
    rounds, dropped = take_rounds(sound(), plan.rounds, clock, plan.block_us, look)
    for lane in sound():
        lane.rounds = [one[lane.name] for one in rounds]
    return {
        "size": dict(size),
        "slots": len(slots),
        "working_set_bytes": len(slots) * op.bytes_moved(size),
        "method": "graph" if graphed else "eager",
        "rounds_dropped": dropped,
        "arms": {lane.name: _summary(lane) for lane in lanes},
    }


def take_rounds(
    lanes: Sequence[Lane], rounds: int, clock, block_us: float, look: Callable[[Lane], None] | None = None
) -> tuple[list[dict[str, float]], int]:
    """Return microseconds of a call by arm for each round, and how many rounds were repeated for throttling.

    `look` is called with each arm after its block of the last round, to check the results that were timed.
    """
    taken, dropped = [], 0
    while len(taken) < rounds and lanes:
        this, reasons = {}, []
        for lane in in_order(lanes, len(taken) + dropped):
            for tensor in itertools.chain(*lane.kept):
                tensor.fill_(float("nan"))
            passes = max(1, round(block_us / lane.call_us / len(lane.calls)))
            block = functools.partial(_repeat, lane.play, passes)
            this[lane.name] = clock.time_us(block) / passes / len(lane.calls)
            reasons += lane.clocks.sample()
            if look and len(taken) == rounds - 1:
                look(lane)
        lanes = [lane for lane in lanes if lane.status == "ok"]
        if reasons and dropped < rounds:
            dropped += 1
        else:
            taken.append(this)
    return taken, dropped


def _repeat(play, passes):
    for _ in range(passes):
        play()


def draw(op: Op, size: Size, device: str, number: int = 0) -> Tensors:
    """Draw the inputs of a call, and allocate its results, filled with NaN."""
    normal = _normal(op, device, number)
    tensors = op.inputs(normal, size)
    for name, shape in op.gives(size).items():
        tensors[name] = torch.full(shape, float("nan"), dtype=op.dtype, device=device)
    return tensors


def _normal(op: Op, device: str, number: int) -> Callable[..., torch.Tensor]:
    generator = torch.Generator(device).manual_seed(SEED + number)
    return lambda *shape: torch.randn(shape, generator=generator, device=device).to(op.dtype)


def _slot(op: Op, size: Size, device: str, number: int) -> Tensors:
    """Return one buffer set, shared by all arms: a call's tensors, and those of the copy of equal bytes."""
    tensors = draw(op, size, device, number)
    if not op.by_arithmetic:
        half = op.bytes_moved(size) // 2 // op.dtype.itemsize  # one half is read, the other is written
        copied = _normal(op, device, number)(half)
        tensors |= {"copy_from": copied, "copy_to": torch.empty_like(copied)}
    return tensors


def _arms(op, ours) -> list[Peer]:
    """Return ours, the peers, the first baseline again as the A/A test, and the copy of equal bytes."""
    first = next(peer for peer in op.peers if peer.name == op.baselines[0])
    return [
        *ours,
        *op.peers,
        replace(first, name=f"{first.name}{AGAIN}"),
        *([] if op.by_arithmetic else [COPY]),
    ]


def _lane(op, size, arm, slots, expected) -> Lane:
    kept = [tuple(s[name] for name in op.gives(size)) for s in slots]
    lane = Lane(arm.name, kept, expected)
    with _reporting(lane):
        lane.calls = [arm.make(s) for s in slots]
        lane.play = lane.once
    return lane


@contextlib.contextmanager
def _reporting(lane):
    """Drop an arm that fails, with the reason; if the device itself has failed, the process ends."""
    try:
        yield
    except ImportError as error:
        lane.drop("not installed", plainly(error))
    except MissingError as error:
        lane.drop("missing", plainly(error))
    except Exception as error:  # the other arms are still measured
        lane.drop("failed", plainly(error))
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def plainly(error: Exception) -> str:
    """Return the first line of an error, without names of folders."""
    first = f"{type(error).__name__}: {error}".splitlines()[0]
    return re.sub(r"(?:/[\w.+-]+)+/", "", first)[:200]


def _warm(lane, clock) -> None:
    """Compile, autotune, and find out how long a call takes."""
    lane.play()
    spent = 0.0
    while spent < WARM_US:
        spent += (us := clock.time_us(lane.play))
        lane.call_us = us / len(lane.calls)


def _mistake(op, slot, lane, number) -> str:
    if lane.name == COPY.name:
        return "" if torch.equal(slot["copy_from"], slot["copy_to"]) else "the copy differs from its source"
    if op.mistake:
        return op.mistake(slot, lane.kept[number][0])
    right = lane.expected[number]
    return differs(lane.kept[number], right, op.dtype, op.allowed(slot, right) if op.allowed else None)


def _summary(lane) -> dict:
    samples = lane.clocks.samples
    return {
        "status": lane.status,
        "reason": lane.reason,
        "rounds_us": lane.rounds,
        "eager_us": lane.eager_us,
        "clocks": {
            "sm_mhz": samples.sm_mhz,
            "watts": samples.watts,
            "celsius": samples.celsius,
            "reasons": sorted(samples.reasons),
            "unread": lane.clocks.missing,
        },
    }

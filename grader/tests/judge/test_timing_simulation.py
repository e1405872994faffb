"""Simulated rounds: slowing any subset of blocks gains nothing, and honest kernels are decided.

The noise is that of the stored records of an H200: blocks vary by 0.5 to 2.2 %, the clock drifts by up to
3 % over a shape, the two positions differ by up to 1.4 %, and a block in fifty is an outlier.
"""

import random
from itertools import chain, combinations, product
from statistics import mean
from typing import NamedTuple

import pytest

from grader.judge import statistics
from grader.judge.speed import ALONE_BLOCKS, ATTEMPTS
from grader.results.timing import Round

BLOCK_US, OVERHEAD_US = 12_000.0, 250.0
ROUND_S = 0.3  # patience ends the rounds of a large shape after about 30
TRUE = 0.5  # the submission's speed; 50 % of the baseline
NOISE = 0.015  # what a submission may gain, as a share of its percentage: the noise of one block
R1, S1, S2, R2 = range(4)  # the blocks of a round, in their order
SUBSETS = list(chain.from_iterable(combinations(range(4), count) for count in range(1, 5)))


class Machine(NamedTuple):
    """What a machine adds to the time of a block, as shares of it."""

    noise: float = 0.01
    drift: float = 0.0  # from the first round to the last that patience allows
    outliers: float = 0.02
    position: float = 0.005  # how much slower the last block of a round is than the first

    def block(self, rng: random.Random, at: float) -> float:
        """A factor near 1 for a block at a moment from 0, the first round, to 1."""
        outlier = 1.0 + rng.expovariate(10.0) if rng.random() < self.outliers else 1.0
        return (1.0 + self.drift * at) * rng.gauss(1.0, self.noise) * outlier


def honest(_rng, _number, _ratios):
    """Factors by which a submission slows the four blocks of a round."""
    return (1.0,) * 4


def attempt(rng, machine, slow, true=TRUE):
    """One shape timed once, as SpeedTest does: (estimate, what disturbed it)."""
    base = BLOCK_US - OVERHEAD_US
    before = [base * machine.block(rng, 0.0) + OVERHEAD_US for _ in range(ALONE_BLOCKS)]
    rounds, ratios, last = [], [], statistics.PATIENCE_S / ROUND_S
    while not statistics.finished(ratios, len(ratios) * ROUND_S):
        factors, at = slow(rng, len(ratios), ratios), len(ratios) / last
        places = (1.0, 1.0, 1.0 + machine.position, 1.0 + machine.position)
        works = (base, base / true, base / true, base)
        times = [
            work * place * machine.block(rng, at) * factor + OVERHEAD_US
            for work, place, factor in zip(works, places, factors, strict=True)
        ]
        one = Round(reference_us=(times[R1], times[R2]), student_us=(times[S1], times[S2]))
        rounds.append(one)
        ratios.append(one.ratio(OVERHEAD_US))
    after = [base * machine.block(rng, len(ratios) / last) + OVERHEAD_US for _ in range(ALONE_BLOCKS)]
    usual_us = statistics.usual_us(before, after, OVERHEAD_US)
    return statistics.judged(rounds, usual_us, OVERHEAD_US)


def graded(rng, machine, slow=honest, true=TRUE):
    """The percentage that counts after all attempts; None if a person has to decide."""
    for _ in range(ATTEMPTS):
        result, disturbed = attempt(rng, machine, slow, true)
        if result.conclusive and not disturbed:
            return 100.0 * result.ratio
    return None


def gain(machine, slow, runs, seed=1):
    """The expected share by which `slow` raises the percentage; an undecided run gains nothing."""
    rng = random.Random(seed)
    found = [graded(rng, machine, slow) for _ in range(runs)]
    return mean(0.0 if one is None else one / (100.0 * TRUE) - 1.0 for one in found)


def subset(blocks, factor, probability=1.0, *, together=True):
    """Slow these blocks of a round, all or each by itself with a probability."""

    def slow(rng, _number, _ratios):
        hit = rng.random() < probability
        return tuple(
            factor if at in blocks and (hit if together else rng.random() < probability) else 1.0
            for at in range(4)
        )

    return slow


def from_round(first, factor):
    """Slow both blocks of the reference in late rounds only."""
    return lambda _rng, number, _ratios: (factor, 1.0, 1.0, factor) if number >= first else (1.0,) * 4


def growing(by_a_round):
    """Slow both blocks of the reference, a little more in each round."""
    return lambda _rng, number, _ratios: (1.0 + number * by_a_round, 1.0, 1.0, 1.0 + number * by_a_round)


def until_lucky(wide, limit):
    """Keep the interval wide by own waits until chance has raised the ratio, then let the rounds end."""

    def slow(rng, _number, ratios):
        enough = len(ratios) >= statistics.FEWEST_ROUNDS
        lucky = enough and statistics.estimate(ratios).ratio > TRUE * (1 + limit)
        wait = 1.0 if lucky or rng.random() < 0.6 else 1.0 + wide * rng.random()
        return (1.0, wait, wait, 1.0)

    return slow


def once_more_if_unlucky(limit):
    """Spoil an attempt in which chance has lowered the ratio, because an undecided shape is timed again."""

    def slow(_rng, _number, ratios):
        unlucky = len(ratios) >= 6 and statistics.estimate(ratios).ratio < TRUE * (1 - limit)
        return (3.0, 1.0, 1.0, 3.0) if unlucky else (1.0,) * 4

    return slow


ADAPTIVE = {
    "late": from_round(8, 1.3),
    "late, little": from_round(6, 1.05),
    "growing": growing(0.01),
    "growing, little": growing(0.002),
    "until lucky": until_lucky(0.2, 0.004),
    "until lucky, little": until_lucky(0.03, 0.002),
    "once more": once_more_if_unlucky(0.003),
}


def test_the_sum_of_both_blocks_lets_one_slowed_block_double_the_speed():
    """What the estimator of timing protocol 1 gave for a trick that this simulation has to show."""
    times = {"reference_us": (12_000.0, 36_000.0), "student_us": (24_000.0, 24_000.0)}
    assert sum(times["reference_us"]) / sum(times["student_us"]) == 1.0
    assert Round(**times).ratio(0.0) == TRUE


def test_an_honest_kernel_gets_its_percentage():
    rng = random.Random(3)
    found = [graded(rng, Machine()) for _ in range(40)]
    assert None not in found
    assert mean(found) == pytest.approx(100.0 * TRUE, rel=0.003)


@pytest.mark.parametrize("factor", [1.05, 3.0])
def test_no_subset_of_slowed_blocks_gains_more_than_noise(factor):
    for blocks, (probability, together) in product(SUBSETS, ((1.0, True), (0.6, False))):
        won = gain(Machine(), subset(blocks, factor, probability, together=together), 12)
        assert won <= NOISE, (blocks, factor, probability, won)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_no_disturbance_that_follows_the_rounds_gains_more_than_noise(name):
    assert gain(Machine(), ADAPTIVE[name], 60) <= NOISE


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.015])
@pytest.mark.parametrize("drift", [-0.03, 0.0, 0.03])
def test_no_disturbance_gains_more_than_noise_on_any_machine(noise, drift):
    machine = Machine(noise, drift)
    ways = [
        subset(blocks, factor, probability, together=together)
        for blocks in SUBSETS
        for factor in (1.02, 1.08, 1.3, 3.0)
        for probability, together in ((0.4, True), (0.6, False), (0.9, False), (1.0, True))
    ]
    ways += ADAPTIVE.values()
    # A clock that falls by 3 % after the blocks before the rounds leaves half of that to a slowed reference.
    most = NOISE + abs(drift) / 2
    assert [won for slow in ways if (won := gain(machine, slow, 20)) > most] == []


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.015])
@pytest.mark.parametrize("drift", [-0.03, 0.0, 0.03])
@pytest.mark.parametrize("true", [0.5, 0.95, 1.1])
def test_honest_kernels_are_undecided_in_less_than_1_run_of_100(noise, drift, true):
    rng = random.Random(7)
    found = [graded(rng, Machine(noise, drift), true=true) for _ in range(500)]
    assert sum(one is None for one in found) < 5
    assert mean(filter(None, found)) == pytest.approx(100.0 * true, rel=0.004)


@pytest.mark.slow
def test_when_the_rounds_end_says_nothing_about_the_ratio():
    """The stop rule sees the width alone: short runs and long ones have the same mean."""
    rng, lengths, ratios = random.Random(11), [], []
    for _ in range(600):
        found = []
        while not statistics.finished(found, len(found) * ROUND_S):
            found.append(rng.gauss(1.0, 0.008))
        lengths.append(len(found))
        ratios.append(statistics.estimate(found).ratio)
    middle = statistics.median(lengths)
    short = [ratio for ratio, length in zip(ratios, lengths, strict=True) if length <= middle]
    long = [ratio for ratio, length in zip(ratios, lengths, strict=True) if length > middle]
    assert mean(ratios) == pytest.approx(1.0, abs=0.0006)
    assert mean(short) == pytest.approx(mean(long), abs=0.001)

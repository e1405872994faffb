"""The statistics of paired rounds: which ranks bound the median, when to stop, and what physics allows."""

import math
import random
from itertools import pairwise
from statistics import stdev

import pytest

from grader.judge import statistics
from grader.judge.statistics import FEWEST_ROUNDS, HALF_WIDTH, MOST_ROUNDS
from grader.results.timing import Round

NARROW = [1.0 + 1e-4 * HALF_WIDTH * k for k in range(FEWEST_ROUNDS)]
WIDE = [1.0 + 10 * HALF_WIDTH * (k % 2) for k in range(FEWEST_ROUNDS)]


def ranks(n):
    """The two ranks that bound the median of n values, counted from 1."""
    return statistics.interval([float(rank) for rank in range(n, 0, -1)])


def coverage(n, rank):
    """Probability that the median lies between the values of rank `rank` from below and from above."""
    return 1 - 2 * sum(math.comb(n, k) for k in range(rank)) / 2**n


def test_interval_of_11_values_lies_between_ranks_2_and_10():
    assert ranks(11) == (2, 10)


@pytest.mark.parametrize("n", [6, 7, 11, 12, 25, 40, 80])
def test_interval_covers_95_percent_and_no_narrower_one_does(n):
    low, high = ranks(n)
    assert low + high == n + 1
    assert coverage(n, int(low)) >= 0.95 > coverage(n, int(low) + 1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_interval_of_too_few_values_is_their_extremes(n):
    assert ranks(n) == (1, n)


@pytest.mark.parametrize("n", [FEWEST_ROUNDS, 40])
def test_interval_holds_the_true_median_in_at_least_95_of_100_trials(n):
    rng = random.Random(20240229)
    trials = [statistics.interval([rng.lognormvariate(0.0, 0.3) for _ in range(n)]) for _ in range(3000)]
    held = sum(low <= 1.0 <= high for low, high in trials) / len(trials)
    # Three standard errors of 3000 trials below what the ranks promise.
    assert held >= coverage(n, int(ranks(n)[0])) - 3 * math.sqrt(0.05 * 0.95 / 3000)
    assert held >= 0.95


@pytest.mark.parametrize(
    ("values", "middle"),
    [([3.0], 3.0), ([4.0, 1.0], 2.5), ([9.0, 1.0, 2.0], 2.0), ([1.0, 9.0, 2.0, 4.0], 3.0)],
)
def test_median_is_the_middle_or_the_mean_of_two(values, middle):
    assert statistics.median(values) == middle


def test_median_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no median"):
        statistics.median([])


def test_one_disturbed_round_asks_for_two_more_and_moves_nothing_then():
    disturbed = [*NARROW[:-1], 100.0]
    assert statistics.estimate(disturbed).ratio == pytest.approx(statistics.estimate(NARROW).ratio, rel=1e-5)
    assert not statistics.finished(disturbed)
    more = [*disturbed, 1.0, 1.0]
    assert statistics.finished(more)
    assert statistics.estimate(more).conclusive
    assert statistics.estimate(more).high < 1.0 + HALF_WIDTH


@pytest.mark.parametrize("n", [FEWEST_ROUNDS, 2 * FEWEST_ROUNDS, MOST_ROUNDS])
def test_the_ratio_varies_less_than_the_median_of_the_rounds(n):
    rng = random.Random(5)
    trials = [[rng.gauss(1.0, 0.001) for _ in range(n)] for _ in range(1000)]
    ratios = stdev(statistics.estimate(trial).ratio for trial in trials)
    assert ratios < 0.93 * stdev(map(statistics.median, trials))


@pytest.mark.parametrize("n", [FEWEST_ROUNDS, 2 * FEWEST_ROUNDS + 1, MOST_ROUNDS - 1])
def test_less_than_half_of_the_rounds_cannot_move_the_ratio_far(n):
    rng = random.Random(5)
    few = (n - 1) // 2
    for wrong in (0.5, 1.1, 3.0):
        rounds = [rng.gauss(1.0, 0.001) for _ in range(n - few)]
        moved = statistics.estimate([*rounds, *[wrong] * few]).ratio
        least, most = min(rounds), max(rounds)
        assert (1 - statistics.NEAR) * least <= moved <= (1 + statistics.NEAR) * most


def test_narrow_interval_ends_the_rounds_and_a_wide_one_does_not():
    assert statistics.finished(NARROW)
    assert not statistics.finished(WIDE)
    assert not statistics.finished(NARROW, half_width=1e-5 * HALF_WIDTH)
    assert not statistics.estimate(WIDE).conclusive


def test_patience_ends_wide_rounds_but_never_fewer_than_the_least():
    assert statistics.finished(WIDE, statistics.PATIENCE_S)
    assert not statistics.estimate(WIDE).conclusive
    assert not statistics.finished(WIDE, 0.99 * statistics.PATIENCE_S)
    assert not statistics.finished(WIDE[:-1], 10 * statistics.PATIENCE_S)


def test_an_interval_that_decides_waits_less_long_for_a_narrow_one():
    fair = [1.0 + 2.5 * HALF_WIDTH * (k % 2) for k in range(2 * FEWEST_ROUNDS)]
    assert statistics.estimate(fair).conclusive
    assert statistics.finished(fair, statistics.ENOUGH_S)
    assert not statistics.finished(fair, 0.99 * statistics.ENOUGH_S)
    assert not statistics.finished(WIDE, statistics.ENOUGH_S)


def test_fewer_rounds_than_the_least_never_end_however_alike():
    assert not any(statistics.finished([1.0] * n) for n in range(FEWEST_ROUNDS))
    assert not statistics.estimate([1.0] * (FEWEST_ROUNDS - 1)).conclusive
    assert statistics.finished([1.0] * FEWEST_ROUNDS)


def test_patience_ends_with_the_most_rounds_however_wide():
    noisy = [1.0 + 10 * HALF_WIDTH * (k % 2) for k in range(MOST_ROUNDS)]
    assert not statistics.finished(noisy[:-1])
    assert statistics.finished(noisy)
    assert not statistics.estimate(noisy).conclusive


@pytest.mark.parametrize("factor", [2.0, 64.0])
@pytest.mark.parametrize("seed", range(5))
def test_stop_rule_of_a_fast_answer_looks_at_the_relative_width_and_not_at_the_value(factor, seed):
    rng = random.Random(seed)
    ratios = [rng.gauss(1.5, 1.5 * HALF_WIDTH * (0.2 + 0.6 * seed)) for _ in range(2 * FEWEST_ROUNDS)]
    counts = range(1, len(ratios) + 1)
    stops = [statistics.finished(ratios[:n]) for n in counts]
    assert stops == [statistics.finished([factor * ratio for ratio in ratios[:n]]) for n in counts]


@pytest.mark.parametrize("less", [0.25, 0.75])
@pytest.mark.parametrize("seed", range(5))
def test_stop_rule_of_a_slow_answer_looks_at_the_points_of_percent_and_not_at_the_value(less, seed):
    rng = random.Random(seed)
    ratios = [rng.gauss(0.9, HALF_WIDTH * (0.2 + 0.6 * seed)) for _ in range(2 * FEWEST_ROUNDS)]
    counts = range(1, len(ratios) + 1)
    stops = [statistics.finished(ratios[:n]) for n in counts]
    assert stops == [statistics.finished([ratio - less for ratio in ratios[:n]]) for n in counts]


def test_a_restless_answer_at_a_tenth_of_the_speed_is_known_well_enough():
    restless = [0.10 + 0.005 * (k % 2) for k in range(FEWEST_ROUNDS)]
    assert statistics.estimate(restless).conclusive


def test_stop_rule_stops_some_of_these_rounds_and_not_others():
    rng = random.Random(0)
    stops = {
        statistics.finished([rng.gauss(1.0, HALF_WIDTH * width) for _ in range(2 * FEWEST_ROUNDS)])
        for width in (0.2, 5.0)
    }
    assert stops == {True, False}


def test_ratio_is_reference_over_student():
    assert Round(reference_us=(100.0, 100.0), student_us=(50.0, 50.0)).ratio(0.0) == 2.0
    assert Round(reference_us=(100.0, 110.0), student_us=(500.0, 400.0)).ratio(0.0) == 0.25


def test_overhead_is_taken_off_each_of_the_two_blocks():
    assert Round(reference_us=(110.0, 110.0), student_us=(60.0, 60.0)).ratio(10.0) == 2.0


def test_overhead_left_in_would_flatter_the_slower_side():
    rounds = Round(reference_us=(110.0, 110.0), student_us=(60.0, 60.0))
    assert rounds.ratio(0.0) < rounds.ratio(10.0)


def test_floor_is_the_slower_of_memory_and_arithmetic():
    assert statistics.floor_us(4_000_000, 0, 4e12, 1e15) == pytest.approx(1.0)
    assert statistics.floor_us(4_000_000, 8_000_000_000, 4e12, 1e15) == pytest.approx(8.0)
    assert statistics.floor_us(40_000_000, 8_000_000_000, 4e12, 1e15) == pytest.approx(10.0)


def test_floor_ignores_a_rate_that_is_unknown():
    assert statistics.floor_us(4_000_000, 8_000_000_000, 0.0, 1e15) == pytest.approx(8.0)
    assert statistics.floor_us(4_000_000, 8_000_000_000, 4e12, 0.0) == pytest.approx(1.0)
    assert statistics.floor_us(4_000_000, 8_000_000_000, 0.0, 0.0) == 0.0


def test_interval_narrows_as_rounds_are_added():
    widths = [(ranks(n)[1] - ranks(n)[0]) / n for n in (11, 20, 40, 80)]
    assert all(before > after for before, after in pairwise(widths))

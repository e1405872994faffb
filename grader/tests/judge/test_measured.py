"""How wrong results relate to the right ones, and that nothing is said which one case contradicts."""

import pytest
import torch

from grader.judge.measured import Seen, measured

ROWS = torch.arange(1.0, 5.0)[:, None]
GENERATOR = torch.Generator().manual_seed(7)
RIGHT = [torch.randn(shape, generator=GENERATOR, dtype=torch.float64) for shape in ((4, 33), (6, 129))]
RIGHT = [one + 0.3 * one.sign() for one in RIGHT]  # no element is near 0


def seen(wrong, right=RIGHT, dtype="fp32"):
    found = []
    for expected in right:
        got = wrong(expected)
        found.append(Seen.of(got, expected, (got - expected).abs() > 1e-6, dtype))
    return measured(found)


def column(x):
    return torch.arange(1.0, x.shape[0] + 1, dtype=torch.float64)[:, None]


def line(x):
    return torch.arange(1.0, x.shape[1] + 1, dtype=torch.float64)[None]


FOUND = {
    "sign": (lambda x: -x, "each value has the wrong sign"),
    "factor": (lambda x: 0.5 * x, "every element is 0.5 times what is expected"),
    "factor of the size": (
        lambda x: x * x.shape[0],
        "all elements of a case have one factor: 4 to 6 times what is expected",
    ),
    "offset": (lambda x: x + 2, "the result less what is expected is the same for all elements: 2"),
    "square": (lambda x: x * x, "each value is the square of what is expected"),
    "factor of a row": (
        lambda x: x * column(x) / 10,
        "every element of a row has one factor: 0.1 to 0.6 times what is expected",
    ),
    "offset of a row": (
        lambda x: x + column(x), "the result less what is expected is the same for a whole row: 1 to 6"
    ),
    "factor of a block": (
        lambda x: x * (1 + (line(x) - 1) // 32) / 10,
        "in a row, each block of 32 columns is right but for a factor of its own: its sum, or its maximum, "
        "is not that of the whole row, but of one block alone, or of another row",
    ),
    "reversed": (lambda x: x.flip(1), "the values are right, and each row has them in the reverse order"),
    "shifted": (
        lambda x: x.roll(1, 1),
        "the values are right, and in another order: row 0, column 0 has the value that belongs to "
        "row 0, column 128",
    ),
    "zeros": (torch.zeros_like, "all wrong values are 0"),
    "digits": (lambda x: x.bfloat16().double(), "the values are right to 2 digits (16 bits have 3)"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), FOUND.values(), ids=FOUND)
def test_a_relation_that_holds_in_all_cases_is_said(wrong, words):
    assert seen(wrong) == words


def test_a_factor_or_an_offset_of_a_column():
    right = [torch.cat([one, one + 1.0, one - 2.0]) for one in RIGHT]
    assert seen(lambda x: x * line(x) / 10, right).startswith(
        "every element of a column has one factor: 0.1 to"
    )
    assert seen(lambda x: x + line(x), right).endswith("the same for a whole column: 1 to 129")


def test_blocks_are_said_only_of_rows_that_have_several_with_factors_of_their_own():
    factors = torch.rand((6, 5), generator=GENERATOR, dtype=torch.float64) + 0.5

    def by_block(x):
        return x * factors[: x.shape[0]].repeat_interleave(32, 1)[:, : x.shape[1]]

    def at_random(x):
        return torch.randn(x.shape, generator=GENERATOR, dtype=torch.float64)

    assert "each block of 32 columns" in seen(by_block)
    assert "each block of 64 columns" in seen(lambda x: x * (1 + (line(x) - 1) // 64) / 10, RIGHT[1:])
    assert "block" not in seen(by_block, [*RIGHT, RIGHT[0][:, :32]])  # the last has one block
    for wrong in (lambda x: (x * factors[: x.shape[0], :1]).float().double(), at_random):
        assert "block" not in seen(wrong)


def test_rows_that_should_sum_to_one():
    words = seen(lambda x: 0.69 * x, [one.softmax(1) for one in RIGHT])
    assert words == "every element is 0.69 times what is expected"
    words = seen(lambda x: x * (1 - column(x) / 10), [one.softmax(1) for one in RIGHT])
    assert words == "each row sums to 0.4 to 0.9 and not to 1, and its elements have the right proportions"


@pytest.mark.parametrize(("wrong", "words"), FOUND.values(), ids=FOUND)
def test_nothing_is_said_that_one_case_contradicts(wrong, words):
    torch.manual_seed(3)
    other = RIGHT[0] * torch.rand_like(RIGHT[0]).mul(9).sub(3)
    results = [
        *(Seen.of(wrong(one), one, torch.ones_like(one, dtype=torch.bool)) for one in RIGHT),
        Seen.of(other, RIGHT[0], torch.ones_like(other, dtype=torch.bool)),
    ]
    assert seen(wrong) == words
    assert measured(results) != words


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_is_said_of_a_result_that_is_not_finite(value):
    assert seen(lambda x: 0.5 * x)
    assert seen(lambda x: torch.full_like(x, value)) == ""


def test_a_few_elements_follow_any_relation():
    assert seen(lambda x: 0.5 * x, [RIGHT[0][:1, :3]]) == ""
    assert measured([]) == ""

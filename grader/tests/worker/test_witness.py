"""What the interpreter sees of a call: races and accesses outside, and none in kernels that are right."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from grader.judge import facts
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT
from grader.worker.protocol import encode
from grader.worker.witness import recorder
from grader.worker.witness.record import (
    MOST_FACTS,
    MOST_LAUNCHES,
    MOST_REACHES,
    Argument,
    Birth,
    Launch,
    Outside,
    Race,
    Reach,
    Witnessed,
)

FILE = Path(__file__).with_name("witness_programs.py")


@pytest.fixture(scope="module")
def seen():
    """What was seen of each function of the file, by its name."""
    done = python(str(FILE), TRITON_INTERPRET="1", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: Witnessed.claimed(one["seen"]) for one in said}


def beginning(seen, word):
    return {name: found for name, found in seen.items() if name.startswith(f"{word}_")}


def test_every_planted_race_is_found_and_no_right_program_is_flagged(seen):
    planted, honest = beginning(seen, "race"), beginning(seen, "honest")
    assert (len(planted), len(honest)) == (18, 18)
    assert [name for name, found in planted.items() if not found.races] == []
    assert [name for name, found in honest.items() if found != Witnessed()] == []
    assert [name for name, found in planted.items() if found.outside] == []


def test_an_access_outside_is_found_and_none_where_there_is_none(seen):
    out, inside = beginning(seen, "outside"), beginning(seen, "inside")
    assert (len(out), len(inside)) == (7, 6)
    assert [name for name, found in out.items() if not found.outside or found.races] == []
    assert [name for name, found in inside.items() if found != Witnessed()] == []


def test_a_function_of_a_reduction_that_is_not_associative_is_told(seen):
    grouping, associative = beginning(seen, "grouping"), beginning(seen, "associative")
    assert (len(grouping), len(associative)) == (3, 4)
    assert [name for name, found in grouping.items() if not found.groupings] == []
    assert [name for name, found in associative.items() if found.groupings] == []
    text = FILE.read_text()
    for name, called in (("reduction", "tl.reduce(block, 0, sq"), ("scan", "tl.associative_scan(")):
        (fact,) = grouping[f"grouping_of_a_{name}"].groupings
        assert fact.line == text[: text.index(called)].count("\n") + 1
        told = facts.groupings([fact], text)
        assert told.startswith(f"line {fact.line}: `{called.partition('(')[0]}` needs")
        # 0 + 1 * 1, and with that 2 * 2; or 1 + 2 * 2 squared.
        assert (
            "an associative function, and `squared` is not: of the same three elements it makes 5 if" in told
        )
        assert told.endswith("and 25 if the last two are")


def test_a_product_that_wraps_around_is_told_with_its_line_and_its_numbers(seen):
    wraps, fits = beginning(seen, "wraps"), beginning(seen, "fits")
    assert (len(wraps), len(fits)) == (1, 2)
    ((fact,),) = [found.wraps for found in wraps.values()]
    line = FILE.read_text().splitlines().index("    at = row * stride") + 1
    assert fact == Birth("*", ("2", "1073741824"), "-2147483648", line, (2, 0, 0), "2147483648")
    told = facts.wraps([fact], FILE.read_text())
    assert told.startswith(f"line {line}: `row * stride` is computed in int32, where 2 * 1073741824 wraps to")
    assert [name for name, found in fits.items() if found.wraps] == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("at = i * s + j * t", "line 1: `i * s` or `j * t` is computed in int32"),
        ("at = first + i * s", "line 1: `i * s` is computed in int32"),
        ("at = f(i)", "line 1: * is computed in int32"),
        ("at = (", "line 1: * is computed in int32"),
    ],
)
def test_what_wraps_around_is_quoted_from_its_line(code, told):
    fact = Birth("*", ("2", "3"), "1", 1, (0, 0, 0), "6")
    assert facts.wraps([fact], code).startswith(told)


def test_of_what_wraps_around_the_products_are_told():
    every = [Birth(sign, ("2", "3"), "1", line, (0, 0, 0), "6") for line, sign in enumerate("+**", 1)]
    told = facts.wraps(every, "a = b + c\nd = e * f\ng = h * k")
    assert told.startswith("lines 2, 3: `e * f` and `h * k` are computed in int32")


def test_a_trial_sees_the_same_accesses_outside_and_nothing_else(seen):
    names = [name for name in seen if f"bounds_{name}" in seen]
    assert len(names) > 40
    for name in names:
        whole, bounds = seen[name], seen[f"bounds_{name}"]
        assert bounds == Witnessed(outside=whole.outside), name
        assert (bounds.accesses, bounds.lanes, bounds.reaches) == (whole.accesses, whole.lanes, ()), name


def line_of(part):
    (line,) = [number for number, code in enumerate(FILE.read_text().split("\n"), 1) if part in code]
    return line


COPY = "tl.store(out + at * cols + offs, tl.load(x + at * stride"
MASKED = "tl.store(out + offs, 2.0 * tl.load(x + offs, mask=offs < n), mask=offs < n)"


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("outside_before_the_first", MASKED, "reads x 2 to 1 elements before its first one, in program 0"),
        ("outside_of_scratch", MASKED, "writes out[12..15] of 12, in program 0"),
        (
            "outside_without_a_mask",
            "2.0 * tl.load(x + offs))  # unmasked",
            "reads x[24..31] of 24, in program 1",
        ),
        ("outside_by_the_stride_of_another", COPY, "reads x[4, 0..14] of 4 x 15, in program 3"),
        ("outside_as_another_type", "tl.store(out.to(", "writes out[59] of 59, in program 3"),
        ("outside_descriptor", "second.store([0, 0]", "reads x[3, 0..19] of 3 x 20, in program 0"),
    ],
)
def test_an_access_outside_is_said_with_line_tensor_places_and_program(seen, name, code, said):
    fact = seen[name].outside[0]
    if name == "outside_of_scratch":
        assert not any(not one.writes for one in seen[name].outside)
    assert facts.outside(fact) == f"line {line_of(code)} {said}"


def test_a_load_without_a_mask_is_told_from_one_with_a_wrong_mask(seen):
    unmasked, masked = seen["outside_without_a_mask"].outside[0], seen["outside_of_scratch"].outside[0]
    assert "`x` has no mask" in facts.cause_outside(unmasked)
    assert "mask" in facts.cause_outside(masked)
    one = dataclasses.replace(unmasked, last=unmasked.first)
    assert facts.cause_outside(one).endswith("past its end, and has no mask: look at the grid as well")
    before = facts.cause_outside(dataclasses.replace(unmasked, first=-3, last=-1))
    assert before.endswith("goes before its beginning: the offset that its address is made of is negative")
    assert not any(digit in facts.cause_outside(masked).split(":")[1] for digit in "0123456789")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("race_two_programs_a_row", "programs (0,0) and (0,1) both store out[0]"),
        ("race_blocks_overlap", "programs 0 and 1 both store out[12]"),
        ("race_shift_by_one_in_place", "program 0 loads x[16] in line "),
        ("race_sum_read_before_all_have_added", "program 0 changes total[0] in line "),
    ],
)
def test_a_race_is_said_with_both_programs_and_the_element(seen, name, said):
    fact = seen[name].races[0]
    assert facts.race(fact).startswith(said)
    assert facts.cause_race(fact).startswith("line")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("of_zero_by_zero", [("block / tl.sum(block", "0 / 0 is nan")]),
        ("in_a_lane_that_is_stored", [("tl.exp(100.0", "exp of 100 is inf")]),
        (
            "of_an_overflow",
            [("powers = tl.exp", "exp of 100 is inf"), ("powers / powers", "inf / inf is nan")],
        ),
        ("of_infinity_minus_infinity", [("tl.exp(block - tl.max", "-inf - -inf is nan")]),
        ("of_rounding", [("(1e4 * tl.load", "to fp16 of 7e+04 is inf")]),
    ],
)
def test_a_stored_nan_or_inf_is_told_with_line_and_operands(seen, name, said):
    told = facts.births(seen[f"traced_born_{name}"].births)
    assert told == "; ".join(f"line {line_of(code)}: {words}" for code, words in said)


@pytest.mark.parametrize(
    ("name", "code", "operation"),
    [
        ("in_a_difference_of_squares", "- mean * mean", " - "),
        ("before_a_maximum_is_subtracted", "tl.exp2(block - tl.max", " - "),
        ("in_a_conversion", "other=0.0).to(tl.float16)", "to fp16 of "),
        ("in_one_lane_of_many", "1.0 - 1.0 / (1.0 + tl.exp", "1 - 0.9999"),
        ("behind_a_function_of_libdevice", "0.5 * libdevice.tanh(0.5", "0.5 + -0.4999"),
    ],
)
def test_lost_digits_are_told_with_line_and_both_results(seen, name, code, operation):
    (fact,) = seen[f"traced_lost_{name}"].births
    told = facts.births([fact])
    assert told.startswith(f"line {line_of(code)} loses digits: ")
    assert operation in told
    assert told.endswith(f" gives {fact.result}, and without any rounding before it would be {fact.exact}")
    assert float(fact.result) != float(fact.exact)


def test_no_digits_are_lost_where_rounding_does_not_grow(seen):
    kept = beginning(seen, "traced_kept")
    assert len(kept) == 4
    assert all(found == Witnessed() for found in kept.values())


def test_nothing_is_born_where_all_is_finite(seen):
    assert len(beginning(seen, "traced_honest")) == len(beginning(seen, "honest"))
    assert all(found == Witnessed() for found in beginning(seen, "traced_honest").values())


# How far lines reach, and what was launched


def test_a_line_reaches_as_far_as_its_active_lanes(seen):
    """The blocks are of 16, and the last one has 12 elements."""
    reaches = seen["honest_sum_by_atomic"].reaches
    (load,) = (one for one in reaches if not one.writes)
    assert (load.tensor.name, load.tensor.shape, load.first, load.last) == ("x", (60,), 0, 59)
    (change,) = (one for one in reaches if one.writes)
    assert (change.tensor.name, change.first, change.last) == ("out", 0, 0)
    assert load.line == change.line > 0


def test_a_launch_is_told_with_its_line_and_its_grid(seen):
    (launch,) = seen["honest_sum_by_atomic"].launches
    assert launch == Launch(
        line_of("add_by_atomic[(PARTS,)]"), (4, 1, 1), is_asked_for=False, has_turns=False
    )


def test_a_launch_whose_programs_ask_for_their_number_is_told(seen):
    (persistent,) = seen["honest_persistent_without_masks"].launches
    assert persistent.is_asked_for
    assert persistent.has_turns


# The record is a claim

X = Argument("x_ptr", (40,), (1,))
OUTSIDE = Outside(X, 40, 63, False, True, 76, (0, 0, 0), (1, 1, 1))
RACE = Race(X, 7, ("store", "load"), (3, 4), ((0, 0, 0), (1, 0, 0)), (2, 1, 1))


def claimed(seen):
    return Witnessed.claimed(json.loads(json.dumps(encode(seen))))


def test_a_record_arrives_as_it_was_sent():
    assert claimed(Witnessed((OUTSIDE,), (RACE,))) == Witnessed((OUTSIDE,), (RACE,))


@pytest.mark.parametrize(
    "forged",
    [
        dataclasses.replace(OUTSIDE, line=-1),
        dataclasses.replace(OUTSIDE, first=1 << 70, last=1 << 71),
        dataclasses.replace(OUTSIDE, first=9, last=3),
        dataclasses.replace(OUTSIDE, tensor=Argument("x", (40,), ())),
        dataclasses.replace(OUTSIDE, tensor=Argument("x", (1,) * 1000, (1,) * 1000)),
        dataclasses.replace(OUTSIDE, program=(0, 0)),
        dataclasses.replace(OUTSIDE, line="76"),
    ],
    ids=lambda forged: str(forged)[:60],
)
def test_a_record_that_cannot_be_is_an_empty_one(forged):
    assert claimed(Witnessed((forged,))) == Witnessed()


@pytest.mark.parametrize("reply", [None, 7, [], {}, {"outside": []}, {"outside": 1, "races": []}])
def test_no_record_is_an_empty_one(reply):
    assert Witnessed.claimed(reply) == Witnessed()


def test_a_long_record_is_an_empty_one():
    assert claimed(Witnessed((OUTSIDE,) * (MOST_FACTS + 1))) == Witnessed()


@pytest.mark.parametrize(
    "forged",
    [
        Birth("/", ("0", "expected 0.5"), "nan", 3, (0, 0, 0)),
        Birth("/", ("0",) * 9, "nan", 3, (0, 0, 0)),
        Birth("/", ("0", "0"), "nan", 1 << 40, (0, 0, 0)),
        Birth("-", ("2", "1"), "1", 3, (0, 0, 0), "one"),
    ],
    ids=["words", "many operands", "no line", "words for a number"],
)
def test_a_birth_has_numbers_and_a_line(forged):
    assert claimed(Witnessed(births=(forged,))) == Witnessed()
    right = Birth("/", ("0", "0"), "nan", 3, (0, 0, 0))
    assert claimed(Witnessed(births=(right,))).births == (right,)


def test_a_name_is_one_line():
    named = dataclasses.replace(OUTSIDE, tensor=Argument("x\n::error::\x1b[31m", (40,), (1,)))
    (fact,) = claimed(Witnessed((named,))).outside
    assert "\n" not in fact.tensor.name
    assert "\x1b" not in fact.tensor.name


REACH = Reach(X, 1024, 7, False, 0, 39)
LAUNCH = Launch(31, (4, 1, 1), False)


@pytest.mark.parametrize(
    "forged",
    [
        {"reaches": (dataclasses.replace(REACH, first=40),)},
        {"reaches": (dataclasses.replace(REACH, offset=-2),)},
        {"reaches": (dataclasses.replace(REACH, line=0),)},
        {"reaches": (dataclasses.replace(REACH, last=1 << 70),)},
        {"reaches": (REACH,) * (MOST_REACHES + 1)},
        {"launches": (dataclasses.replace(LAUNCH, grid=(4, 1)),)},
        {"launches": (dataclasses.replace(LAUNCH, line=-1),)},
        {"launches": (LAUNCH,) * (MOST_LAUNCHES + 1)},
    ],
    ids=lambda forged: str(forged)[:60],
)
def test_reaches_and_launches_that_cannot_be_are_none(forged):
    found = claimed(Witnessed(**forged))
    assert (found.reaches, found.launches) == ((), ())
    right = claimed(Witnessed(reaches=(REACH,), launches=(LAUNCH,)))
    assert (right.reaches, right.launches) == ((REACH,), (LAUNCH,))


@pytest.mark.parametrize(
    "places", [[7], [7, 7, 9], [7, 9, 7 + recorder.MOST_MARKED, 9], [1 << 40, 5, 1 << 40]]
)
def test_different_addresses_are_counted_near_and_far(places):
    assert recorder._different(np.array(places, np.uint64)) == len(set(places))

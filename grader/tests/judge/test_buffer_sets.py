"""Which parts of the outputs of a timed block are sampled inside the clock."""

from dataclasses import replace

import pytest
import torch

from grader.course import catalog
from grader.course.spec import Verdict
from grader.judge import comparison, timed_outputs
from grader.judge.buffer_sets import LINE, LINES_PER_OUTPUT, PAGE_LINES, BufferSets
from grader.judge.inputs import Rng
from grader.judge.timed_outputs import Verifier
from grader.worker.shared_memory import PAGE, Arena, Buffer, Tensor

ROWS, COLS = 32768, 4096  # bf16: 256 MiB
OUTPUT_PAGES = ROWS * COLS * 2 // PAGE


def sampled(calls, blocks=1):
    """The pages of each output that blocks of so many calls sample, counted from the output's start."""
    sets = BufferSets.__new__(BufferSets)
    sets.rng = Rng(5, "test", "cpu")
    size = OUTPUT_PAGES * PAGE
    outputs = [
        Buffer("out", Tensor(k * size, (ROWS, COLS), (COLS, 1), "bf16"), k * size, (k + 1) * size)
        for k in range(calls)
    ]
    sets.sets = [[([], [one]) for one in outputs]]
    found = []
    for _ in range(blocks):
        lines = sets.secret_lines(0).reshape(calls, -1)
        assert lines.shape[1] <= LINES_PER_OUTPUT
        pages = lines // PAGE_LINES - OUTPUT_PAGES * torch.arange(calls)[:, None]
        found.append([set(row.tolist()) for row in pages])
    return found


@pytest.mark.parametrize("calls", [1, 32, 33, 43, 64])
def test_every_output_is_sampled_at_its_end_and_elsewhere(calls):
    (block,) = sampled(calls)
    for pages in block:
        assert OUTPUT_PAGES - 1 in pages
        assert len(pages) > 1


def test_places_are_drawn_for_each_output_and_each_block():
    first, second = ([min(pages) for pages in block] for block in sampled(43, blocks=2))
    assert len(set(first)) > 20
    assert first != second


def test_an_output_of_which_any_half_is_late_is_noticed_in_a_block_of_64_calls():
    for block in sampled(64, blocks=20):
        seen = [min(pages) for pages in block]
        assert min(seen) < OUTPUT_PAGES // 2 < max(seen)


def test_the_cost_of_a_sample_is_bounded():
    for calls in (1, 43, 64):
        (block,) = sampled(calls)
        # A place need not begin with a page, so it may lie on two.
        assert sum(map(len, block)) <= 2 * max(64, 2 * calls)
    assert LINE * LINES_PER_OUTPUT <= PAGE


def test_zeros_in_a_part_of_an_output_are_no_result():
    exercise = next(one for one in catalog.find()[0].lab.exercises if one.speed)
    case = replace(exercise.speed.shapes[0], params={"n": 4096})
    sets = BufferSets(Arena.create("cpu", 1 << 26), exercise, case, 2, seed=5)
    sets.poison(0)
    assert sets.is_blank(0)
    out = sets.arena.view(sets.sets[0][1][1][0].tensor)
    out[:100] = 0.0
    assert sets.is_blank(0)
    out[7] = 1.0
    assert not sets.is_blank(0)


@pytest.fixture
def verified():
    """A verifier with a calibrated tolerance, and sets whose outputs are right; call 0 is the secret one."""
    lab = catalog.find()[0].lab
    exercise = next(one for one in lab.exercises if one.speed)
    case = replace(exercise.speed.shapes[0], params={"n": 4099})
    sets = BufferSets(Arena.create("cpu", 1 << 26), exercise, case, 4, seed=5)
    sets.rng.whole = lambda _: 0
    values = sets.draw()
    sets.write(values, 0)
    for (_, (out,)), drawn in zip(sets.sets[0], values, strict=True):
        sets.arena.view(out.tensor).copy_(drawn["x"] + drawn["y"])
    verifier = Verifier(lab, sets)
    assert verifier.check(0, values) is None
    assert verifier.tolerance is not None
    return verifier, sets, values


def counted(monkeypatch, owner, name):
    """Calls of a function, which still does what it did."""
    calls, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *asked, **more: calls.append(asked) or real(*asked, **more))
    return calls


def test_right_outputs_are_right_by_their_norms(verified, monkeypatch):
    """Then no call but the secret one is looked at element by element, and nothing is looked at twice."""
    verifier, sets, values = verified
    within = counted(monkeypatch, timed_outputs.comparison, "within")
    compared = counted(monkeypatch, timed_outputs.comparison, "compare")
    inputs = counted(monkeypatch, timed_outputs, "same_bits")
    single = counted(monkeypatch, Verifier, "_damaged")
    assert verifier.check(0, values) is None
    assert (len(within), len(compared), len(single)) == (1, 0, 0)
    assert len(inputs) == 2 * sets.calls + sets.calls - 1  # x, y, and outputs of which all bits count


def test_a_check_that_is_not_close_looks_at_no_call_element_by_element(verified, monkeypatch):
    verifier, sets, values = verified
    within = counted(monkeypatch, timed_outputs.comparison, "within")
    in_fp64 = counted(monkeypatch, timed_outputs.comparison, "expect")
    by_norms = counted(monkeypatch, Verifier, "_agreement")
    assert verifier.check(0, values, closely=False) is None
    assert (len(within), len(in_fp64), len(by_norms)) == (0, 0, sets.calls)
    assert Verifier(verifier.lab, sets).check(0, values, closely=False) is None
    assert (len(within), len(in_fp64)) == (1, 1)  # the first check is close in any case: it calibrates


@pytest.mark.parametrize("closely", [True, False])
@pytest.mark.parametrize("call", range(4))
def test_a_wrong_row_of_any_call_is_found_by_the_norm(closely, call):
    lab = catalog.find()[1].lab
    exercise = next(one for one in lab.exercises if one.speed)
    case = replace(exercise.speed.shapes[0], params={"rows": 50, "cols": 300})
    sets = BufferSets(Arena.create("cpu", 1 << 26), exercise, case, 4, seed=5)
    values = sets.draw()
    sets.write(values, 0)
    outs = [sets.arena.view(out.tensor) for _, (out,) in sets.sets[0]]
    for out, drawn in zip(outs, values, strict=True):
        out.copy_(drawn["x"].softmax(dim=1))
    verifier = Verifier(lab, sets)
    assert verifier.check(0, values) is None
    assert verifier.check(0, values, closely) is None
    outs[call][49] = outs[call][48]
    assert verifier.check(0, values, closely).verdict is Verdict.WRONG


def test_a_check_in_fp64_computes_the_unit_of_the_tolerance_once():
    """It is a formula of many steps; the tolerance for PyTorch's results follows from the same numbers."""
    lab = catalog.find()[1].lab
    exercise = next(one for one in lab.exercises if one.speed)
    case = replace(exercise.speed.shapes[0], params={"rows": 5, "cols": 1001})
    units, unit = [], exercise.tolerance.unit

    def noted(*asked):
        units.append(unit(*asked))
        return units[-1]

    once = replace(exercise, tolerance=replace(exercise.tolerance, unit=noted))
    sets = BufferSets(Arena.create("cpu", 1 << 26), once, case, 1, seed=5)
    values = sets.draw()
    sets.write(values, 0)
    (_, (out,)) = sets.sets[0][0]
    sets.arena.view(out.tensor).copy_(values[0]["x"].softmax(dim=1))
    verifier = Verifier(lab, sets)
    assert verifier.check(0, values) is None
    assert len(units) == 1
    allowed = comparison.expect(exercise, case, values[0]).allowed
    assert 2.0 * (allowed[0] / units[0][0]).max().item() == pytest.approx(verifier.tolerance.factors[0])
    sets.arena.view(out.tensor)[3, 7] *= 1.05
    assert verifier.check(0, values).verdict is Verdict.WRONG


@pytest.mark.parametrize("wide", [False, True], ids=["by PyTorch", "in fp64"])
def test_a_random_choice_is_followed_once_for_each_call(wide):
    lab = catalog.find()[3].lab
    exercise = next(one for one in lab.exercises if one.speed and one.follow)
    case = replace(exercise.speed.shapes[0], params={"n": 4096, "p": 0.5}, dtype="fp32")
    followed, follow = [], exercise.follow
    counted = replace(exercise, follow=lambda *asked: followed.append(1) or follow(*asked))
    sets = BufferSets(Arena.create("cpu", 1 << 26), counted, case, 3, seed=5)
    sets.rng.whole = lambda bound: 0 if bound == 3 or wide else 1
    values = sets.draw()
    sets.write(values, 0)
    for (_, (out,)), drawn in zip(sets.sets[0], values, strict=True):
        kept = torch.rand(4096, generator=torch.Generator().manual_seed(int(drawn["seed"]))) >= 0.5
        sets.arena.view(out.tensor).copy_((2.0 * drawn["x"]).where(kept, 0.0))
    verifier = Verifier(lab, sets)
    assert verifier.check(0, values) is None
    followed.clear()
    assert verifier.check(0, values) is None
    assert len(followed) == 3
    for _, (out,) in sets.sets[0]:
        right = sets.arena.view(out.tensor).clone()
        sets.arena.view(out.tensor).mul_(1.01)
        assert verifier.check(0, values).verdict is Verdict.WRONG
        sets.arena.view(out.tensor).copy_(right)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("x", Verdict.MUTATED_INPUT), ("band", Verdict.OUT_OF_BOUNDS), ("out", Verdict.WRONG)],
)
@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("closely", [True, False])
def test_damage_to_any_call_of_a_block_is_found(verified, name, verdict, call, closely):
    verifier, sets, values = verified
    inputs, (out,) = sets.sets[0][call]
    if name == "band":
        sets.arena.bytes(out.start, out.stop)[-1] ^= 1
    else:
        buffer = next(one for one in (*inputs, out) if one.name == name)
        sets.arena.view(buffer.tensor)[7] += 100.0
    assert verifier.check(0, values, closely).verdict is verdict


def test_an_input_that_is_changed_in_both_sets_is_found_in_a_close_check(verified):
    """Else the sets are compared with each other; outputs always with what the judge computes."""
    verifier, sets, values = verified
    for calls in sets.sets:
        (x, _), _ = calls[2]
        sets.arena.view(x.tensor)[7] += 100.0
    assert verifier.check(0, values, closely=True).verdict is Verdict.MUTATED_INPUT

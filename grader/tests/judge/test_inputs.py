"""Seeded inputs and the bands around lent tensors: what is drawn repeats, and every stray write is found."""

import types
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.course import catalog
from grader.course.spec import Case, Layout
from grader.judge.inputs import (
    BITS,
    GUARD,
    Placer,
    Rng,
    band_input,
    band_output,
    bands_whole,
    draw,
    draw_poison,
    draw_sentinel,
    first_change_outside,
    in_dtype,
    numbers,
    output_shapes,
    poison_output,
    same_bits,
    tensors,
    untouched,
    whole_outside,
)
from grader.judge.shapes import shapes_of
from grader.worker.shared_memory import ALIGN, PAGE, TORCH_DTYPES, Arena

LAYOUTS = {
    "plain": Layout(),
    "padded": Layout(pad=3),
    "transposed": Layout(transposed=True),
    "both": Layout(True, 3),
    "every second column": Layout(step=2),
    "all three": Layout(True, 3, step=2),
}
ROWS, COLS = 5, 7
each_dtype = pytest.mark.parametrize("dtype", TORCH_DTYPES)
EXERCISES = {exercise.name: exercise for entry in catalog.find() for exercise in entry.lab.exercises}
each_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def first_change(arena, buffer, before):
    """What `first_change_outside` finds; the short answer is the same."""
    found = first_change_outside(arena, buffer, before)
    assert bool(whole_outside(arena, buffer, before)) == (found is None)
    return found


@pytest.fixture(scope="module")
def arena():
    arena = Arena.create("cpu", 4 * PAGE)
    yield arena
    arena.close()


def rng(purpose="test", seed=7):
    return Rng(seed, purpose, "cpu")


def place(dtype="fp32", layout=Layout(), shape=(ROWS, COLS)):  # noqa: B008, because a Layout never changes
    return Placer().place("out", shape, dtype, layout)


def region(arena, buffer):
    """Everything from the band before to the band behind, as bit patterns that can be written."""
    return arena.bytes(buffer.start, buffer.stop).view(BITS[TORCH_DTYPES[buffer.tensor.dtype]])


def write(arena, buffer, offset):
    """Change the element `offset` elements from the tensor's first one, by a single bit."""
    size = TORCH_DTYPES[buffer.tensor.dtype].itemsize
    region(arena, buffer)[GUARD // size + offset] ^= 1


def sizes(case):
    return [value for value in case.params.values() if isinstance(value, int)]


# Drawing


@each_exercise
def test_same_seed_gives_the_same_bits_and_another_seed_or_call_gives_others(exercise):
    case = next(case for case in exercise.cases if max(sizes(case)) > 100)  # no two draws agree by chance
    first = draw(exercise, case, 1, "cpu")
    again = draw(exercise, case, 1, "cpu")
    others = [draw(exercise, case, 2, "cpu"), draw(exercise, case, 1, "cpu", call=1)]
    assert first
    assert numbers(first) == numbers(again)
    for name, value in tensors(first).items():
        assert value.dtype == TORCH_DTYPES[case.dtype]
        assert same_bits(value, again[name])
        assert not any(same_bits(value, other[name]) for other in others)


def test_numbers_of_a_timed_call_are_drawn_in_its_dtype(monkeypatch):
    drawn, normal = [], Rng.normal

    def seen(rng, *shape, **which):
        drawn.append(normal(rng, *shape, **which))
        return drawn[-1]

    monkeypatch.setattr(Rng, "normal", seen)
    timed = [(one, one.speed.shapes[0]) for one in EXERCISES.values() if one.speed]
    for exercise, shape in timed:
        small = {name: min(n, 64) if type(n) is int else n for name, n in shape.params.items()}
        values = draw(exercise, replace(shape, params=small), 1, "cpu", narrow=True)
        assert all(value.dtype == TORCH_DTYPES[shape.dtype] for value in tensors(values).values())
    assert len(drawn) >= len(timed)
    assert {value.dtype for value in drawn} == {TORCH_DTYPES[shape.dtype] for _, shape in timed}


def test_another_exercise_or_case_gets_other_numbers():
    values = [rng(purpose).normal(9) for purpose in ("add/n=9/0", "add/n=9/1", "sub/n=9/0", "add/n=9,x/0")]
    assert len({tuple(value.tolist()) for value in values}) == 4


def test_integers_reach_both_bounds_and_no_further():
    numbers = rng().integers(-2, 3, 500)
    assert numbers.dtype == torch.float32
    assert sorted(set(numbers.tolist())) == [-2, -1, 0, 1, 2, 3]


def test_what_dropout_keeps_is_never_0_whatever_was_drawn(monkeypatch):
    # A normal number is exactly 0 once in ten million: a kept 0 would look as if it had been dropped.
    monkeypatch.setattr(Rng, "normal", lambda _, *shape: torch.zeros(shape))
    for exercise in EXERCISES.values():
        if exercise.follow is not None:
            case = next(one for one in exercise.cases if one.params.get("n"))
            drawn = draw(exercise, case, 1, "cpu")
            tensors = [one for one in drawn.values() if isinstance(one, torch.Tensor)]
            assert tensors
            assert all(bool(one.all()) for one in tensors)


def test_whole_numbers_stay_below_the_bound():
    source = rng()
    assert {source.whole(3) for _ in range(60)} == {0, 1, 2}


@each_exercise
def test_layouts_of_a_lab_name_tensors_that_the_exercise_has(exercise):
    # A layout of a name that nobody has would be ignored, and its case would test nothing.
    speed = exercise.speed
    timed = (*speed.shapes, *speed.baselines, *speed.peers) if speed else ()
    known = {*shapes_of(exercise, exercise.cases[0]), *exercise.outputs}
    assert [name for asked in (*exercise.cases, *timed) for name in asked.layouts if name not in known] == []


def tensors_only(shapes):
    return {name: shape for name, shape in shapes.items() if isinstance(shape, tuple)}


@each_exercise
def test_numbers_of_an_exercise_are_those_that_its_inputs_give(exercise):
    given = {name for case in exercise.cases for name in numbers(draw(exercise, case, 1, "cpu"))}
    assert given == set(exercise.numbers)


@each_exercise
def test_shapes_without_data_are_those_of_the_data(exercise):
    case = min(exercise.cases, key=lambda case: sum(sizes(case)))
    values = draw(exercise, case, 1, "cpu")
    shapes = {name: tuple(value.shape) for name, value in tensors(values).items()}
    wide = exercise.reference(**in_dtype(values, torch.float64))
    assert tensors_only(shapes_of(exercise, case)) == shapes
    assert numbers(values).keys() == {name for name in shapes_of(exercise, case) if name not in shapes}
    shapes = shapes_of(exercise, case)
    assert list(output_shapes(exercise, shapes).values()) == [tuple(value.shape) for value in wide]


def test_the_reference_runs_once_for_the_shapes_of_many_calls():
    ran = []

    def reference(x, twice):
        ran.append(twice)
        return (torch.cat([x, x]) if twice is True else x,)

    asked = types.SimpleNamespace(outputs=("y",), reference=reference)
    for _ in range(3):
        assert output_shapes(asked, {"x": (3, 4), "twice": True}) == {"y": (6, 4)}
        assert output_shapes(asked, {"x": (3, 4), "twice": 1}) == {"y": (3, 4)}
    assert output_shapes(asked, {"x": (4, 4), "twice": 1}) == {"y": (4, 4)}
    assert ran == [True, 1, 1]


# Bands


@each_dtype
@each_layout
def test_nan_lies_around_an_input_and_between_its_rows(arena, dtype, layout):
    buffer = place(dtype, layout)
    band_input(arena, buffer)
    arena.view(buffer.tensor).fill_(1.0)
    values = arena.bytes(buffer.start, buffer.stop).view(TORCH_DTYPES[dtype])
    assert int((values == 1.0).sum()) == ROWS * COLS
    assert int(values.isnan().sum()) == values.numel() - ROWS * COLS
    behind = values[GUARD // values.itemsize + buffer.tensor.span :]
    assert values[: GUARD // values.itemsize].isnan().all()
    assert behind.isnan().all()
    assert behind.numel() * behind.itemsize >= GUARD


@each_dtype
@each_layout
def test_finite_sentinel_lies_around_an_output_and_poison_in_it(arena, dtype, layout):
    buffer = place(dtype, layout)
    before = poison_output(arena, buffer, rng())
    values = before.view(TORCH_DTYPES[dtype])
    interior = arena.view(buffer.tensor)
    assert interior.isnan().all()
    assert len(interior.contiguous().view(BITS[interior.dtype]).unique()) == 1
    assert int(values.isnan().sum()) == ROWS * COLS
    (sentinel,) = values[~values.isnan()].unique().tolist()
    assert 0.0 < sentinel < torch.finfo(values.dtype).smallest_normal
    assert torch.equal(before, region(arena, buffer))


@each_dtype
def test_poison_and_sentinel_differ_from_draw_to_draw(dtype):
    source = rng()
    assert len({draw_poison(source, dtype) for _ in range(40)}) > 20
    assert len({draw_sentinel(source, dtype) for _ in range(40)}) > 20


@each_dtype
def test_poison_is_a_nan_that_arithmetic_does_not_make(dtype):
    # A GPU makes a NaN with every bit set, a CPU one with the highest bit of the mantissa alone.
    source = rng()
    drawn = torch.tensor([draw_poison(source, dtype) for _ in range(3000)], dtype=torch.int64)
    poison = drawn.to(BITS[TORCH_DTYPES[dtype]])
    assert poison.view(TORCH_DTYPES[dtype]).isnan().all()
    computed = torch.tensor([float("nan")]).to(TORCH_DTYPES[dtype]).view(BITS[TORCH_DTYPES[dtype]]).item()
    every_bit = torch.iinfo(BITS[TORCH_DTYPES[dtype]]).max
    assert int(((poison == computed) | (poison == every_bit)).sum()) == 0


@each_dtype
@each_layout
def test_element_is_untouched_until_it_is_written(arena, dtype, layout):
    buffer = place(dtype, layout)
    before = poison_output(arena, buffer, rng())
    assert untouched(arena, buffer, before).all()
    arena.view(buffer.tensor)[2, 3] = 0.5
    mask = untouched(arena, buffer, before)
    assert mask.shape == (ROWS, COLS)
    assert (~mask).nonzero().tolist() == [[2, 3]]


def test_nan_that_was_computed_is_not_untouched(arena):
    buffer = place("fp32")
    before = poison_output(arena, buffer, rng())
    arena.view(buffer.tensor)[4, 6] = float("inf") - float("inf")
    assert (~untouched(arena, buffer, before)).nonzero().tolist() == [[4, 6]]


def test_writing_the_whole_tensor_changes_nothing_outside(arena):
    for layout in LAYOUTS.values():
        buffer = place("fp16", layout)
        before = poison_output(arena, buffer, rng())
        arena.view(buffer.tensor).fill_(float("nan"))
        assert first_change(arena, buffer, before) is None
        assert not untouched(arena, buffer, before).any()


SPANS = {"plain": 35, "padded": 47, "transposed": 35, "both": 53, "every second column": 69, "all three": 87}
BAND = {"fp32": GUARD // 4, "fp16": GUARD // 2, "bf16": GUARD // 2}


@each_dtype
@pytest.mark.parametrize("name", LAYOUTS)
def test_one_changed_element_outside_is_found_at_its_offset(arena, dtype, name):
    buffer = place(dtype, LAYOUTS[name])
    assert buffer.tensor.span == SPANS[name]
    # Rows of COLS elements are padded to COLS + 3, and where they are stored transposed, ROWS to ROWS + 3.
    gaps = {
        "padded": [COLS, COLS + 2, 37],
        "both": [ROWS, ROWS + 2, 47],
        "every second column": [1, 2 * COLS - 1, 67],
        "all three": [1, 2 * ROWS, 2 * ROWS + 2],
    }.get(name, [])
    for offset in (
        -1,
        -100,
        -BAND[dtype],
        SPANS[name],
        SPANS[name] + 99,
        SPANS[name] + BAND[dtype] - 1,
        *gaps,
    ):
        before = poison_output(arena, buffer, rng())
        write(arena, buffer, offset)
        assert first_change(arena, buffer, before) == offset


def test_of_several_changes_the_one_nearest_behind_the_start_is_reported(arena):
    buffer = place("fp32")
    before = poison_output(arena, buffer, rng())
    for offset in (-3, -8, 36, 50):
        write(arena, buffer, offset)
    assert first_change(arena, buffer, before) == 36
    before = poison_output(arena, buffer, rng())
    for offset in (-3, -8):
        write(arena, buffer, offset)
    assert first_change(arena, buffer, before) == -3


@each_dtype
@pytest.mark.parametrize("shape", [(ROWS, COLS), (4, 8), (1,)], ids=str)
def test_change_at_either_end_of_either_band_breaks_it(arena, dtype, shape):
    buffer = place(dtype, shape=shape)
    sentinel = draw_sentinel(rng(), dtype)
    last = region(arena, buffer).numel() - BAND[dtype] - 1
    for offset in (-BAND[dtype], -1, buffer.tensor.span, last - 1, last):
        band_output(arena, buffer, sentinel)
        assert bands_whole(arena, buffer, sentinel)
        write(arena, buffer, offset)
        assert not bands_whole(arena, buffer, sentinel), (
            f"a change {offset} elements from the first goes unseen"
        )


def test_bands_are_whole_whatever_the_tensor_and_its_gaps_hold(arena):
    buffer = place("fp32", Layout(pad=3))
    sentinel = draw_sentinel(rng(), "fp32")
    band_output(arena, buffer, sentinel)
    for offset in (0, COLS, buffer.tensor.span - 1):
        write(arena, buffer, offset)
    assert bands_whole(arena, buffer, sentinel)


@pytest.mark.parametrize("shape", [(0,), (0, COLS), (ROWS, 0)], ids=str)
def test_empty_output_has_bands_and_nothing_to_touch(arena, shape):
    buffer = place("bf16", shape=shape)
    before = poison_output(arena, buffer, rng())
    assert first_change(arena, buffer, before) is None
    assert untouched(arena, buffer, before).numel() == 0
    write(arena, buffer, 0)
    assert first_change(arena, buffer, before) == 0


# Bits


@each_dtype
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 1009])
def test_same_bits_sees_a_single_bit_at_any_place(dtype, length):
    one = rng().normal(length).to(TORCH_DTYPES[dtype])
    assert same_bits(one, one.clone())
    for place in {0, length // 2, length - 1} if length else ():
        other = one.clone()
        other.view(BITS[other.dtype])[place] ^= 1
        assert not same_bits(one, other)


@each_dtype
def test_same_bits_tells_zeros_apart_and_takes_nan_for_itself(dtype):
    values = torch.tensor([0.0, float("nan"), -1.0]).to(TORCH_DTYPES[dtype])
    assert same_bits(values, values.clone())
    assert not same_bits(values, torch.tensor([-0.0, float("nan"), -1.0]).to(TORCH_DTYPES[dtype]))


def test_same_bits_compares_elements_and_not_places_in_memory():
    rows = rng().normal(6, 10)
    assert same_bits(rows[:, :7], rows[:, :7].contiguous())
    assert same_bits(rows.T, rows.T.contiguous())
    assert not same_bits(rows.reshape(10, 6), rows.T)


@each_dtype
def test_same_bits_takes_views_that_begin_anywhere(dtype):
    values = rng().normal(9).to(TORCH_DTYPES[dtype])
    shifted = torch.cat([values[:1], values])[1:]
    assert same_bits(shifted, values)
    assert same_bits(values[1:], shifted[1:])
    assert same_bits(values[:8], shifted[:8])
    assert same_bits(shifted[:8], values[:8])


# Placing

SHAPES = st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple)
ASKED = st.tuples(
    SHAPES, st.sampled_from(list(TORCH_DTYPES)), st.builds(Layout, st.booleans(), st.integers(0, 9))
)


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(ASKED, min_size=1, max_size=6))
def test_tensors_lie_aligned_one_behind_the_other_with_bands_of_their_own(asked):
    placer = Placer()
    buffers = [placer.place(f"t{k}", *one) for k, one in enumerate(asked)]
    end = 0
    for buffer, (shape, dtype, layout) in zip(buffers, asked, strict=True):
        first, size = buffer.tensor.offset, TORCH_DTYPES[dtype].itemsize
        assert buffer.start == end
        assert first % ALIGN == 0
        assert first - buffer.start >= GUARD
        assert buffer.stop - (first + buffer.tensor.span * size) >= GUARD
        assert (buffer.tensor.shape, buffer.tensor.strides) == (shape, layout.strides(shape))
        end = buffer.stop
    assert placer.position == end


@settings(max_examples=25, deadline=None, database=None)
@given(ASKED, st.data())
def test_change_is_reported_exactly_where_it_lies_outside(asked, data):
    arena = Arena.create("cpu", PAGE)
    shape, dtype, layout = asked
    buffer = place(dtype, layout, tuple(min(size, 12) for size in shape))
    span, size = buffer.tensor.span, TORCH_DTYPES[dtype].itemsize
    before = poison_output(arena, buffer, rng())
    assert first_change(arena, buffer, before) is None
    own = torch.zeros(span, dtype=torch.bool)
    own.as_strided(buffer.tensor.shape, buffer.tensor.strides).fill_(True)
    offset = data.draw(st.integers(-9, span + 9))
    write(arena, buffer, offset)
    inside = 0 <= offset < span and bool(own[offset])
    assert first_change(arena, buffer, before) == (None if inside else offset)
    assert int(untouched(arena, buffer, before).sum()) == int(own.sum()) - inside
    assert buffer.stop - buffer.start == region(arena, buffer).numel() * size
    arena.close()


def test_case_of_a_lab_keeps_its_layouts_where_it_is_placed():
    case = Case({"rows": 3}, layouts={"x": Layout(pad=5)})
    buffer = Placer().place("x", (3, 4), case.dtype, case.layouts["x"])
    assert buffer.tensor.strides == (9, 1)


def test_strides_of_an_unusual_layout_are_those_of_pytorchs_views():
    wide, projected = torch.empty(5, 14), torch.empty(2, 6, 3, 19)
    assert Layout(step=2).strides((5, 7)) == wide[:, ::2].stride()
    assert Layout(step=2, transposed=True).strides((7, 5)) == wide[:, ::2].T.stride()
    assert Layout(swapped=True, pad=3).strides((2, 3, 6, 16)) == projected[..., :16].transpose(1, 2).stride()
    for wrong in ({"expanded": True, "step": 2}, {"far": True, "step": 2}, {"step": 0}):
        with pytest.raises(ValueError, match=r"step|strides of 0|far apart"):
            Layout(**wrong)
    with pytest.raises(ValueError, match="four axes"):
        Layout(swapped=True).strides((3, 4))

"""Seeded inputs, and their placement in shared memory between guard bands."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

from grader.course.signatures import Inputs, Shape, Shapes
from grader.course.spec import PLAIN, Case, Exercise, Layout
from grader.judge import far_rows
from grader.judge.without_dynamo import without_dynamo
from grader.worker.shared_memory import ALIGN, TORCH_DTYPES, Arena, Buffer, Tensor

# Bytes: an unmasked store of the widest block that a student is likely to use, 65,536 fp32, is still inside.
GUARD = 256 * 1024
BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
EXPONENT = {"fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}
MANTISSA = {"fp32": 0x7FFFFF, "fp16": 0x3FF, "bf16": 0x7F}


class Rng:
    """Random tensors on one device, from a seed and the purpose they are drawn for.

    `call` is the number of the call whose inputs are drawn, `dtype` that of what `normal` draws.
    """

    def __init__(
        self, seed: int, purpose: str, device: str, call: int = 0, dtype: torch.dtype = torch.float32
    ):
        digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self.device, self.call, self._dtype = device, call, dtype
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(int.from_bytes(digest[:7], "little"))
        # Of single numbers: one that is drawn on a GPU would wait for all the work before it.
        self._of_numbers = torch.Generator().manual_seed(int.from_bytes(digest[7:14], "little"))

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Draw from N(mean, std**2); a GPU goes over the memory once, and again if one adds or multiplies."""
        empty = torch.empty(shape, device=self.device, dtype=self._dtype)
        return empty.normal_(mean, std, generator=self._generator)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Draw uniformly from [0, 1), in fp32."""
        return torch.rand(shape, generator=self._generator, device=self.device)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Draw whole numbers from low to high, both included, as fp32."""
        numbers = torch.randint(low, high + 1, shape, generator=self._generator, device=self.device)
        return numbers.to(torch.float32)

    def whole(self, bound: int) -> int:
        """Draw one whole number from 0 to bound - 1."""
        return int(torch.randint(0, bound, (), generator=self._of_numbers))


class Placer:
    """Places tensors in an arena one after the other, each between its own guard bands."""

    def __init__(
        self, start: int = 0, strides: Mapping[str, Shape] = MappingProxyType({}), guard: int = GUARD
    ):
        """Tensors in `strides`, by name, get these and not those of their layout; `guard` is in bytes."""
        self.position, self._strides, self._guard = start, strides, guard

    def place(self, name: str, shape: Shape, dtype: str, layout: Layout = PLAIN) -> Buffer:
        """Place a tensor of this shape; its first element is 256-byte aligned."""
        start = self.position
        if layout.far:
            buffer = far_rows.place(name, tuple(shape), dtype, layout, start, self._guard)
            self.position = buffer.stop
            return buffer
        strides = self._strides.get(name) or layout.strides(tuple(shape))
        tensor = Tensor(start + self._guard, tuple(shape), strides, dtype)
        stop = tensor.offset + tensor.span * TORCH_DTYPES[dtype].itemsize + self._guard
        self.position = math.ceil(stop / ALIGN) * ALIGN
        return Buffer(name, tensor, start, self.position)


def draw(
    exercise: Exercise, case: Case, seed: int, device: str, call: int = 0, narrow: bool = False
) -> Inputs:
    """Draw the inputs of one call, tensors in the case's dtype; same seed and call give the same bits.

    With `narrow` normal numbers are drawn in that dtype and not converted to it, which takes less memory
    traffic.
    """
    dtype = TORCH_DTYPES[case.dtype] if narrow else torch.float32
    rng = Rng(seed, f"{exercise.name}/{case.name}/{call}", device, call, dtype)
    drawn = in_dtype(exercise.inputs(rng, case), TORCH_DTYPES[case.dtype])
    for name, value in tensors(drawn).items():
        if case.layouts.get(name, PLAIN).expanded:
            drawn = {**drawn, name: value.flatten()[0].expand(value.shape)}
    return drawn


def tensors(values: Inputs) -> dict[str, torch.Tensor]:
    """Return the inputs of a call that are tensors."""
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def numbers(values: Inputs) -> dict[str, float]:
    """Return the inputs of a call that are not tensors."""
    return {name: value for name, value in values.items() if not isinstance(value, torch.Tensor)}


def numbers_in(shapes: Shapes) -> dict[str, float]:
    """Return the entries of a call's shapes that are numbers."""
    return {name: value for name, value in shapes.items() if not isinstance(value, tuple)}


def shapes_in(values: Inputs) -> Shapes:
    """Return the inputs of a call with each tensor replaced by its shape."""
    return {name: tuple(v.shape) if isinstance(v, torch.Tensor) else v for name, v in values.items()}


def in_dtype(values: Inputs, dtype: torch.dtype) -> Inputs:
    """Return the inputs of a call with all tensors converted to another dtype."""
    return {**values, **{name: value.to(dtype) for name, value in tensors(values).items()}}


def output_shapes(exercise: Exercise, shapes: Shapes) -> dict[str, Shape]:
    """Return the shapes of the outputs, by running the reference on meta tensors once for the same shapes."""
    # With their types, because True and 1 are one key, as are 1 and 1.0.
    inputs = tuple((name, shape, type(shape)) for name, shape in shapes.items())
    return dict(zip(exercise.outputs, _shapes_out(exercise.reference, inputs), strict=True))


@functools.lru_cache(maxsize=1024)
def _shapes_out(
    reference: Callable[..., Sequence[torch.Tensor]], inputs: tuple[tuple[str, Shape | float, type], ...]
) -> tuple[Shape, ...]:
    meta = {
        name: torch.empty(shape, dtype=torch.float64, device="meta") if isinstance(shape, tuple) else shape
        for name, shape, _ in inputs
    }
    with without_dynamo():
        return tuple(tuple(out.shape) for out in reference(**meta))


def fill(arena: Arena, buffers: Sequence[Buffer], values: Inputs) -> None:
    """Copy the inputs of a call into the buffers with their names."""
    drawn = tensors(values)
    for buffer in buffers:
        lent, value, strides = arena.view(buffer.tensor), drawn[buffer.name], buffer.tensor.strides
        if 0 in strides:  # of an expanded tensor the one element that it has
            own = tuple(slice(None if stride else 1) for stride in strides)
            lent, value = lent[own], value[own]
        lent.copy_(value)


def held(arena: Arena, buffer: Buffer) -> torch.Tensor:
    """Return a copy of a tensor's memory with its bands, as bytes."""
    found = [arena.bytes(piece.start, piece.stop) for piece in buffer.pieces]
    return torch.cat(found) if buffer.parts else found[0].clone()


def put_back(arena: Arena, buffer: Buffer, copy: torch.Tensor) -> None:
    """Write what `held` has returned."""
    for piece, part in _split(buffer, copy):
        arena.bytes(piece.start, piece.stop).copy_(part)


def _split(buffer: Buffer, copy: torch.Tensor) -> list[tuple[Buffer, torch.Tensor]]:
    """Return each piece of a buffer with its share of what `held` has returned, of any dtype."""
    sizes = [(piece.stop - piece.start) // copy.element_size() for piece in buffer.pieces]
    return list(zip(buffer.pieces, copy.split(sizes), strict=True))


def finish_writes(device: str) -> None:
    """Wait for the judge's writes, before another process is asked to read them."""
    if device != "cpu":
        torch.cuda.synchronize()


def band_input(arena: Arena, buffer: Buffer) -> None:
    """Fill the bands and the gaps between rows with NaN, so that an unmasked read shows in the result."""
    for piece in buffer.pieces:
        arena.bytes(piece.start, piece.stop).view(TORCH_DTYPES[buffer.tensor.dtype]).fill_(float("nan"))


def poison_output(arena: Arena, buffer: Buffer, rng: Rng) -> torch.Tensor:
    """Prepare an output: a finite random sentinel around it, NaN with a random payload inside.

    A band of NaN would hide a write of NaN. Returns a copy of the whole region for later comparison.
    """
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    sentinel, poison = draw_sentinel(rng, buffer.tensor.dtype), draw_poison(rng, buffer.tensor.dtype)
    for piece in buffer.pieces:
        band_output(arena, piece, sentinel)
        poison_interior(arena, piece, poison)
    return held(arena, buffer).view(BITS[dtype])


def draw_sentinel(rng: Rng, dtype: str) -> int:
    """Draw the bits of a random subnormal number, which is finite in every dtype."""
    return 1 + rng.whole(MANTISSA[dtype])


def draw_poison(rng: Rng, dtype: str) -> int:
    """Draw the bits of a signalling NaN with a random payload; arithmetic returns quiet NaN only."""
    return EXPONENT[dtype] | (1 + rng.whole(MANTISSA[dtype] >> 1))


def band_output(arena: Arena, buffer: Buffer, sentinel: int) -> None:
    """Write the bits `sentinel` to bands, gaps and the tensor itself."""
    arena.bytes(buffer.start, buffer.stop).view(BITS[TORCH_DTYPES[buffer.tensor.dtype]]).fill_(sentinel)


def poison_interior(arena: Arena, buffer: Buffer, poison: int) -> None:
    """Write the bits `poison` to the tensor's elements."""
    if buffer.tensor.span:
        arena.view(buffer.tensor).view(BITS[TORCH_DTYPES[buffer.tensor.dtype]]).fill_(poison)


def bands_whole(arena: Arena, buffer: Buffer, sentinel: int) -> torch.Tensor:
    """Return whether the bands before and after a tensor still hold `sentinel`; gaps are not checked.

    The answer is a bool in the arena's memory, so that many can be asked for before the GPU is waited for.
    """
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    end = buffer.tensor.offset + buffer.tensor.span * dtype.itemsize
    ends = (arena.bytes(buffer.start, buffer.tensor.offset), arena.bytes(end, buffer.stop))
    before, behind = ((band.view(BITS[dtype]) == sentinel).all() for band in ends)
    return before & behind


def same_bits(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return whether two tensors of one shape and dtype have the same bits: NaN equals itself, 0 not -0.

    The answer is a bool in their memory, as that of `bands_whole`. ValueError for a dtype of no lab.
    """
    one, other = one.contiguous().view(-1), other.contiguous().view(-1)
    # The widest words that length and alignment allow, because fewer elements are compared faster.
    size = one.element_size()
    aligned = math.gcd(one.numel(), int(one.storage_offset()), int(other.storage_offset())) * size
    for words in (torch.int64, torch.int32, torch.int16):
        if aligned % words.itemsize == 0:
            return (one.view(words) == other.view(words)).all()
    raise ValueError(f"{one.dtype} is not a dtype of this course")


def untouched(arena: Arena, buffer: Buffer, before: torch.Tensor) -> torch.Tensor:
    """Return a mask of the output's elements that still hold their poison, bit for bit."""
    view = arena.view(buffer.tensor)
    if not buffer.parts:
        return view.view(BITS[view.dtype]) == _interior(buffer, before)
    rows = [untouched(arena, piece, part) for piece, part in _split(buffer, before) if piece.tensor.span]
    mask = torch.stack(rows)
    return mask if mask.shape == view.shape and buffer.tensor.strides[-1] == 1 else mask.T


def is_blank(values: torch.Tensor, untouched: torch.Tensor) -> bool:
    """Return whether an output is `untouched` but for a single value, such as after `zero_`, or for NaN."""
    if bool((untouched | values.isnan()).all()):
        return True
    one = values.flatten()[int((~untouched).flatten().to(torch.uint8).argmax())]
    return bool((untouched | (values == one)).all())


def whole_outside(arena: Arena, buffer: Buffer, before: torch.Tensor) -> torch.Tensor:
    """Return whether no guard element of an output has changed, as a bool in the arena's memory."""
    if buffer.parts:
        return torch.stack([whole_outside(arena, *pair) for pair in _split(buffer, before)]).all()
    return same_bits(_now_outside(arena, buffer, before), before)


def first_change_outside(arena: Arena, buffer: Buffer, before: torch.Tensor) -> int | None:
    """Return the nearest changed guard element, as an offset in elements from the tensor's first one.

    Changes after the tensor's first element are preferred. None if no guard element has changed.
    """
    if buffer.parts:
        found = (first_change_outside(arena, *pair) for pair in _split(buffer, before))
        return next((offset for offset in found if offset is not None), None)
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    changed = (_now_outside(arena, buffer, before) != before).nonzero()
    if changed.numel() == 0:
        return None
    first = (buffer.tensor.offset - buffer.start) // dtype.itemsize
    behind = changed[changed >= first]
    nearest = behind.min() if behind.numel() else changed.max()
    return int(nearest) - first


def _now_outside(arena: Arena, buffer: Buffer, before: torch.Tensor) -> torch.Tensor:
    """Return a copy of a region, in which the tensor's own elements are as before."""
    now = arena.bytes(buffer.start, buffer.stop).view(before.dtype).clone()
    if buffer.tensor.span:
        _interior(buffer, now).copy_(_interior(buffer, before))
    return now


def _interior(buffer: Buffer, region: torch.Tensor) -> torch.Tensor:
    """Return the tensor's own elements within a copy of its region."""
    first = (buffer.tensor.offset - buffer.start) // region.element_size()
    return region[first : first + buffer.tensor.span].as_strided(
        buffer.tensor.shape, buffer.tensor.strides, region.storage_offset() + first
    )

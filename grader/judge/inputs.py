"""Seeded inputs, and their place in shared memory between guard bands."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch

from grader.course.signatures import Inputs, Shape, Shapes
from grader.course.spec import PLAIN, Case, Exercise, Layout
from grader.worker.shared_memory import ALIGN, TORCH_DTYPES, Arena, Buffer, Tensor

# An unmasked store of the widest block a student is likely to choose still lands in the band: 65,536 fp32.
GUARD = 256 * 1024
BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
EXPONENT = {"fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}
MANTISSA = {"fp32": 0x7FFFFF, "fp16": 0x3FF, "bf16": 0x7F}


class Rng:
    """Random tensors in fp32 on one device, drawn from a seed and what they are for."""

    def __init__(self, seed: int, purpose: str, device: str):
        digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
        self.device = device
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(int.from_bytes(digest[:7], "little"))

    def normal(self, *shape: int) -> torch.Tensor:
        """N(0, 1)."""
        return torch.randn(shape, generator=self._generator, device=self.device)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform in [0, 1)."""
        return torch.rand(shape, generator=self._generator, device=self.device)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Whole numbers from low to high, both included, as fp32."""
        numbers = torch.randint(low, high + 1, shape, generator=self._generator, device=self.device)
        return numbers.to(torch.float32)

    def whole(self, bound: int) -> int:
        """One whole number from 0 to bound - 1."""
        return int(torch.randint(0, bound, (), generator=self._generator, device=self.device))


class Placer:
    """Places tensors in an arena one behind the other, each between bands of its own."""

    def __init__(self, start: int = 0):
        self.position = start

    def place(self, name: str, shape: Shape, dtype: str, layout: Layout = PLAIN) -> Buffer:
        """A buffer for a tensor of this shape; its first element is 256-byte aligned."""
        start = self.position
        tensor = Tensor(start + GUARD, tuple(shape), layout.strides(tuple(shape)), dtype)
        stop = tensor.offset + tensor.span * TORCH_DTYPES[dtype].itemsize + GUARD
        self.position = math.ceil(stop / ALIGN) * ALIGN
        return Buffer(name, tensor, start, self.position)


def draw(exercise: Exercise, case: Case, seed: int, device: str, call: int = 0) -> Inputs:
    """The inputs of one call, tensors in the case's dtype; same seed and call, same bits."""
    rng = Rng(seed, f"{exercise.name}/{case.name}/{call}", device)
    drawn = exercise.inputs(rng, case)
    return in_dtype(drawn, TORCH_DTYPES[case.dtype])


def tensors(values: Inputs) -> dict[str, torch.Tensor]:
    """Of the inputs of a call, those that are tensors."""
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def numbers(values: Inputs) -> dict[str, float]:
    """Of the inputs of a call, those that are no tensors."""
    return {name: value for name, value in values.items() if not isinstance(value, torch.Tensor)}


def numbers_in(shapes: Shapes) -> dict[str, float]:
    """Of the shapes of a call, what is a number of its own."""
    return {name: value for name, value in shapes.items() if not isinstance(value, tuple)}


def shapes_in(values: Inputs) -> Shapes:
    """The inputs of a call with the shape of each tensor in its place."""
    return {name: tuple(v.shape) if isinstance(v, torch.Tensor) else v for name, v in values.items()}


def in_dtype(values: Inputs, dtype: torch.dtype) -> Inputs:
    """The inputs of a call with all tensors in another dtype."""
    return {**values, **{name: value.to(dtype) for name, value in tensors(values).items()}}


def output_shapes(exercise: Exercise, shapes: Shapes) -> dict[str, Shape]:
    """Shapes of the outputs, from the reference run on meta tensors: no lab has to state them."""
    meta = {
        name: torch.empty(shape, dtype=torch.float64, device="meta") if isinstance(shape, tuple) else shape
        for name, shape in shapes.items()
    }
    return {
        name: tuple(out.shape) for name, out in zip(exercise.outputs, exercise.reference(**meta), strict=True)
    }


def fill(arena: Arena, buffers: Sequence[Buffer], values: Inputs) -> None:
    """Copy the inputs of a call into the buffers of their names."""
    drawn = tensors(values)
    for buffer in buffers:
        arena.view(buffer.tensor).copy_(drawn[buffer.name])


def band_input(arena: Arena, buffer: Buffer) -> None:
    """NaN in the bands and between padded rows: an unmasked read shows in the result."""
    arena.bytes(buffer.start, buffer.stop).view(TORCH_DTYPES[buffer.tensor.dtype]).fill_(float("nan"))


def poison_output(arena: Arena, buffer: Buffer, rng: Rng) -> torch.Tensor:
    """Make an output ready: a finite random sentinel around it, NaN with a random payload in it.

    A band of NaN would hide a write of NaN. Returns a copy of the whole region to compare with later.
    """
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    sentinel, poison = draw_sentinel(rng, buffer.tensor.dtype), draw_poison(rng, buffer.tensor.dtype)
    band_output(arena, buffer, sentinel)
    poison_interior(arena, buffer, poison)
    return arena.bytes(buffer.start, buffer.stop).view(BITS[dtype]).clone()


def draw_sentinel(rng: Rng, dtype: str) -> int:
    """Bits of a random subnormal number: finite in every dtype."""
    return 1 + rng.whole(MANTISSA[dtype])


def draw_poison(rng: Rng, dtype: str) -> int:
    """Bits of a signalling NaN with a random payload: arithmetic gives quiet ones."""
    return EXPONENT[dtype] | (1 + rng.whole(MANTISSA[dtype] >> 1))


def band_output(arena: Arena, buffer: Buffer, sentinel: int) -> None:
    """The bits `sentinel` in bands, gaps and the tensor itself."""
    arena.bytes(buffer.start, buffer.stop).view(BITS[TORCH_DTYPES[buffer.tensor.dtype]]).fill_(sentinel)


def poison_interior(arena: Arena, buffer: Buffer, poison: int) -> None:
    """The bits `poison` in the tensor's own elements."""
    if buffer.tensor.span:
        arena.view(buffer.tensor).view(BITS[TORCH_DTYPES[buffer.tensor.dtype]]).fill_(poison)


def bands_whole(arena: Arena, buffer: Buffer, sentinel: int) -> bool:
    """Whether the bands before and behind a tensor still hold `sentinel`; gaps between rows are not looked
    at.
    """
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    end = buffer.tensor.offset + buffer.tensor.span * dtype.itemsize
    ends = (arena.bytes(buffer.start, buffer.tensor.offset), arena.bytes(end, buffer.stop))
    return all(bool((band.view(BITS[dtype]) == sentinel).all()) for band in ends)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits: NaN equals itself, 0 not -0."""
    one, other = one.contiguous().flatten(), other.contiguous().flatten()
    # As wide words as length and alignment allow: fewer elements to compare.
    size = one.element_size()
    places = (one.numel() * size, one.storage_offset() * size, other.storage_offset() * size)
    for words in (torch.int64, torch.int32, torch.int16):
        if all(place % words.itemsize == 0 for place in places):
            return bool((one.view(words) == other.view(words)).all())
    raise ValueError(f"{one.dtype} is no dtype of this course")


def untouched(arena: Arena, buffer: Buffer, before: torch.Tensor) -> torch.Tensor:
    """True where an element of the output still holds its poison, bit for bit."""
    view = arena.view(buffer.tensor)
    return view.view(BITS[view.dtype]) == _interior(buffer, before)


def first_change_outside(arena: Arena, buffer: Buffer, before: torch.Tensor) -> int | None:
    """Offset in elements from the tensor's first one of the first changed guard element; None where all are
    whole.
    """
    dtype = TORCH_DTYPES[buffer.tensor.dtype]
    now = arena.bytes(buffer.start, buffer.stop).view(BITS[dtype]).clone()
    if buffer.tensor.span:
        _interior(buffer, now).copy_(_interior(buffer, before))
    changed = (now != before).nonzero()
    if changed.numel() == 0:
        return None
    behind = changed[changed >= GUARD // dtype.itemsize]
    nearest = behind.min() if behind.numel() else changed.max()
    return int(nearest) - GUARD // dtype.itemsize


def _interior(buffer: Buffer, region: torch.Tensor) -> torch.Tensor:
    """The tensor's own elements within a copy of its region."""
    first = GUARD // region.element_size()
    return region[first : first + buffer.tensor.span].as_strided(
        buffer.tensor.shape, buffer.tensor.strides, region.storage_offset() + first
    )

"""Place matrices whose rows lie more than 2^31 elements apart in memory of which few pages are touched.

A kernel that computes the offset of row 2 in 32 bits gets one that is WRAP elements too small. There is
memory there as well, and it is marked: such a kernel reads NaN or changes a mark, and hits nothing else.
"""

from __future__ import annotations

from grader.course.signatures import Shape
from grader.course.spec import WRAP, Layout
from grader.worker.shared_memory import ALIGN, TORCH_DTYPES, Buffer, Tensor

HALF = WRAP // 2  # elements; from here on an offset wraps


def place(name: str, shape: Shape, dtype: str, layout: Layout, position: int, guard: int) -> Buffer:
    """Place a matrix with far rows; its parts are the rows, each between bands, and where they wrap to.

    `position` and the end of the buffer are bytes of an arena; several of these matrices lie interleaved, so
    the next tensor begins at the end. ValueError if no offset reaches beyond 2^31 elements.
    """
    size = TORCH_DTYPES[dtype].itemsize
    strides = layout.strides(shape)
    step, (rows, cols) = max(strides), shape[::-1] if layout.transposed else shape
    if (rows - 1) * step < HALF:
        raise ValueError(f"{name}: {rows} rows that lie {step} elements apart do not reach 2^31 elements")
    # As far above the position as the first wrapped row lies below the tensor.
    first = position + guard + HALF * size
    parts = []
    for row in range(rows):
        start = first + row * step * size
        parts.append(_part(name, start, cols, dtype, guard))
        if HALF <= row * step < WRAP:  # later rows wrap onto the others
            parts.append(_part(name, start - WRAP * size, cols, dtype, guard, empty=True))
    # Rows of this matrix and of the next lie side by side, and each a little further than the one before.
    drift = max((row * step * size) % (HALF // 2 * size) for row in range(rows))
    stop = -(-(position + 2 * guard + cols * size + drift) // ALIGN) * ALIGN
    return Buffer(name, Tensor(first, shape, strides, dtype), position, stop, tuple(parts))


def _part(name: str, first: int, cols: int, dtype: str, guard: int, empty: bool = False) -> Buffer:
    """Return a row between its bands, or, `empty`, a place that has no element and must not be touched."""
    size = TORCH_DTYPES[dtype].itemsize
    stop = -(-(first + cols * size + guard) // ALIGN) * ALIGN
    shape = (0,) if empty else (cols,)
    return Buffer(name, Tensor(first, shape, (1,), dtype), first - guard, stop)

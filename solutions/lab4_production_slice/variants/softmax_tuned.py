"""EXPECT PASS from fused_softmax_forward and fused_softmax_backward and fused_softmax: tuned for an H200.

The ideas beyond the solution, and what each saves:
* A tile is rows of LANES columns. A reduction along axis 0 stays inside a thread, so each lane has its own
  maximum and sum, and threads wait for each other once a row instead of once a tile.
* A thread has 8 neighbouring columns: in 16 bits one load of 16 bytes, the widest that there is.
* Rows of up to 1024 columns, and of 8193 to 32768, are one tile, which is read once and stays in registers.
* Other rows are read twice, the second time from their end: what was read last is still in the cache.
* Eviction hints keep a row in the cache between its two readings, and results out of it.
* With many warps the compiler is held to 64 registers a thread, so that two programs fit a multiprocessor:
  one loads while the other adds up.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
# Between SHORT and WIDE columns a row is read twice, although it is one tile: kept, it would need registers
# that leave room for fewer programs.
SHORT = tl.constexpr(1024)
WIDE = tl.constexpr(8192)
WIDEST_TILE = 8192
WIDEST_ROW = 32768  # columns of the widest tile that a program can keep


def configs(limited_from: int) -> list[triton.Config]:
    """Return the candidates, 1 to 32 warps; with `limited_from` warps or more a thread has 64 registers."""
    return [
        triton.Config({"LANES": 256 * warps}, num_warps=warps, maxnreg=64 if warps >= limited_from else None)
        for warps in (1, 2, 4, 8, 16, 32)
    ]


def for_forward(configs, named_args, **meta):
    """Return the configs with 16 to 64 values of a tile for each thread, or 64 where a long row is one tile.

    A thread with fewer has too little on its way from memory.
    """
    least = 64 if meta["TILES"] == 1 and meta["TILE"] > WIDEST_TILE else 16
    kept = [config for config in configs if least <= meta["TILE"] // (32 * config.num_warps) <= 64]
    return kept or configs[:1]


def for_backward(configs, named_args, **meta):
    """Return the configs with 8 to 32 values of a tile for each thread: it has them of two matrices."""
    return [config for config in configs if 8 <= meta["TILE"] // (32 * config.num_warps) <= 32]


def tiles(n_cols: int, widest: int) -> dict[str, int]:
    """Return the columns of a tile, and how many tiles a row has; both are powers of two.

    A tile has `widest` columns at most, or half of a longer row, which is then near when it is read again.
    """
    padded = max(256, triton.next_power_of_2(n_cols))
    half = min(triton.next_power_of_2(n_cols) // 2, WIDEST_ROW)
    widest = max(widest, half)
    return {"TILE": min(padded, widest), "TILES": max(1, padded // widest)}


@triton.jit
def columns(TILE: tl.constexpr, LANES: tl.constexpr):
    """Return the columns of a tile as TILE / LANES by LANES."""
    return tl.arange(0, TILE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def load_as_stored(row_ptr, cols, n_cols, other, AGAIN: tl.constexpr):
    """Return columns of a row; AGAIN says whether the cache should keep them for a second time."""
    hint: tl.constexpr = "evict_last" if AGAIN else "evict_first"
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other, eviction_policy=hint)


@triton.jit
def load(row_ptr, cols, n_cols, other, AGAIN: tl.constexpr):
    """Return the same in fp32."""
    return load_as_stored(row_ptr, cols, n_cols, other, AGAIN).to(tl.float32)


@triton.jit
def store(row_ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype; nobody reads them soon."""
    values = values.to(row_ptr.dtype.element_ty)
    tl.store(row_ptr + cols, values, mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def fp32_again(x):
    """Return x in fp32, converted a second time.

    The compiler would keep the fp32 numbers of the first time, in twice the registers of 16 bits. Here it
    cannot know that the bits are the same: program_id(axis=1) is 0 only because the grid has one axis. An
    assembly instruction would cost nothing in place of the xor, but is not permitted in a student's file.
    """
    if x.dtype.primitive_bitwidth == 16:
        zero = tl.program_id(axis=1).to(tl.int16)
        x = (x.to(tl.int16, bitcast=True) ^ zero).to(x.dtype, bitcast=True)
    return x.to(tl.float32)


@triton.jit
def softmax_of_one_tile(x_row, y_row, cols, n_cols):
    """Softmax of a row that stays in registers, as it lies in memory: two numbers of 16 bits share one."""
    x = load_as_stored(x_row, cols, n_cols, -float("inf"), AGAIN=False)
    # exp2 is one instruction, exp is two. Far from 0 the product with log2(e) would lose digits of x - top.
    top = tl.max(tl.max(x.to(tl.float32), axis=0), axis=0)
    terms = tl.exp2((fp32_again(x) - top) * LOG2_E)
    scale = 1.0 / tl.sum(tl.sum(terms, axis=0), axis=0)
    store(y_row, cols, n_cols, terms * scale)


@triton.jit
def softmax_in_two_readings(x_row, y_row, cols, n_cols, TILE: tl.constexpr, LANES: tl.constexpr):
    """Softmax of a row of any length, tile by tile."""
    # From -inf, a lane without columns would give -inf - -inf, which is NaN.
    top_of_lane = tl.full((LANES,), LOWEST, dtype=tl.float32)
    sum_of_lane = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        x = load(x_row, start + cols, n_cols, -float("inf"), AGAIN=True)
        higher = tl.maximum(top_of_lane, tl.max(x, axis=0))
        sum_of_lane *= tl.exp(top_of_lane - higher)
        sum_of_lane += tl.sum(tl.exp(x - higher[None, :]), axis=0)
        top_of_lane = higher
    top = tl.max(top_of_lane, axis=0)
    scale = 1.0 / tl.sum(sum_of_lane * tl.exp(top_of_lane - top), axis=0)
    last = (n_cols - 1) // TILE * TILE
    for start in range(0, n_cols, TILE):
        # Backwards: what was read last is nearest.
        at = last - start + cols
        x = load(x_row, at, n_cols, -float("inf"), AGAIN=False)
        store(y_row, at, n_cols, tl.exp(x - top) * scale)


@triton.autotune(
    configs=configs(limited_from=16),
    key=["n_cols"],
    prune_configs_by={"early_config_prune": for_forward},
)
@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = columns(TILE, LANES)
    if TILES == 1 and (TILE <= SHORT or TILE > WIDE):
        softmax_of_one_tile(x_row, y_row, cols, n_cols)
    else:
        softmax_in_two_readings(x_row, y_row, cols, n_cols, TILE, LANES)


@triton.autotune(
    configs=configs(limited_from=32),
    key=["n_cols"],
    prune_configs_by={"early_config_prune": for_backward},
)
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = columns(TILE, LANES)
    products = tl.zeros((LANES,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        # With one tile the second loop asks for the same with the same hints: the compiler loads it once.
        dy = load(dy_row, at, n_cols, 0.0, AGAIN=TILES > 1)
        y = load(y_row, at, n_cols, 0.0, AGAIN=TILES > 1)
        products += tl.sum(y * dy, axis=0)
    product = tl.sum(products, axis=0)
    for i in range(TILES):
        at = (TILES - 1 - i) * TILE + cols
        dy = load(dy_row, at, n_cols, 0.0, AGAIN=False)
        y = load(y_row, at, n_cols, 0.0, AGAIN=False)
        store(dx_row, at, n_cols, y * (dy - product))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax of each row of x, as in the solution."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, n_cols, x.stride(0), out.stride(0), **tiles(n_cols, WIDEST_ROW))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y, as in the solution."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(dy, y, out, n_cols, *strides, **tiles(n_cols, WIDEST_TILE))
    return out


@triton_op("course::tuned_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::tuned_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)

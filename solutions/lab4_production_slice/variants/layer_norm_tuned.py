"""EXPECT PASS from layer_norm_forward and layer_norm_backward and layer_norm: tuned for an H200.

The ideas beyond the solution, and what each saves:
* A tile is rows of LANES columns. A reduction along axis 0 stays inside a thread, so threads wait for each
  other once a row instead of once a tile.
* Sums of x - near and of its square, with `near` a number close to the mean, give mean and variance in one
  reading, where the solution has two. The squares of x itself would cancel where the mean is large.
* The last tile stays in registers and is not read again. Eviction hints keep the tiles before it in the
  cache, and results out of it.
* The backward pass has as many programs as the GPU has multiprocessors. Each takes rows in turn, and holds
  its sums for dweight and dbias in registers: x and dy are read once for all three gradients.
* Its loop over rows loads two rows ahead (num_stages), and adds four sums over the warps at once.
* Several programs share a row that is too long for one tile: a first launch leaves the sums of each tile.
"""

import torch
import triton
import triton.language as tl
from rows import column_sums, on
from torch.library import triton_op

WIDEST_TILE = 8192
WIDEST_ROW = 32768  # columns of the widest tile that a program can keep
PROGRAMS = 132  # multiprocessors of an H200
WARPS = (1, 2, 4, 8, 16, 32)
# A thread has 8 neighbouring columns, 16 bytes in 16 bits, the widest load; so LANES is 256 a warp.
# 32 warps leave 64 registers for each thread. The compiler keeps to them better if it is told.
LANES = [
    triton.Config({"LANES": 256 * warps}, num_warps=warps, maxnreg=64 if warps == 32 else None)
    for warps in WARPS
]
# Of 16 warps that keep a tile, two programs fit a multiprocessor: one loads while the other adds up.
LANES_OF_KEPT_TILES = [
    triton.Config({"LANES": 256 * warps}, num_warps=warps, maxnreg=64 if warps >= 16 else None)
    for warps in WARPS
]
LANES_AND_STAGES = [
    triton.Config({"LANES": 256 * warps, "STAGES": stages}, num_warps=warps)
    for warps in WARPS
    for stages in (1, 3)
]


def for_forward(configs, named_args, **meta):
    """Return the configs with 8 values of a tile for each thread, and with 32 if the last tile is kept.

    What lies between is slower at work, but not for the autotuner: before each call it writes to all of the
    L2 cache, and what is still to be written then slows that call.
    """
    if not meta["KEPT"]:
        return [config for config in LANES if meta["TILE"] // (32 * config.num_warps) == 8]
    return [config for config in configs if meta["TILE"] // (32 * config.num_warps) in (8, 32)]


def for_backward(configs, named_args, **meta):
    """Return the configs with 8 to 32 values of a tile for each thread."""
    return [config for config in configs if 8 <= meta["TILE"] // (32 * config.num_warps) <= 32]


def tiles(n_cols: int, widest: int) -> dict[str, int]:
    """Return the columns of a tile, and how many tiles a row has; both are powers of two."""
    padded = max(256, triton.next_power_of_2(n_cols))
    return {"TILE": min(padded, widest), "TILES": max(1, padded // widest)}


def tiles_of_forward(n_cols: int) -> dict[str, int]:
    """Return the same, and as KEPT how many tiles stay in registers: the last one, or none.

    A short row is one tile. A longer one is read twice in narrow tiles, which leave room for more programs,
    until half of it is a tile that is worth keeping.
    """
    padded = max(256, triton.next_power_of_2(n_cols))
    if padded <= WIDEST_TILE:
        return tiles(n_cols, padded) | {"KEPT": 1}
    if padded <= 2 * WIDEST_TILE:
        return tiles(n_cols, WIDEST_TILE // 2) | {"KEPT": 0}
    return tiles(n_cols, min(padded // 2, WIDEST_ROW)) | {"KEPT": 1}


@triton.jit
def columns(TILE: tl.constexpr, LANES: tl.constexpr):
    """Return the columns of a tile as TILE / LANES by LANES."""
    return tl.arange(0, TILE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def load(row_ptr, cols, n_cols, other, AGAIN: tl.constexpr):
    """Return columns of a row in fp32; AGAIN says whether the cache should keep them for a second time."""
    hint: tl.constexpr = "evict_last" if AGAIN else "evict_first"
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other, eviction_policy=hint).to(tl.float32)


@triton.jit
def store(row_ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype; nobody reads them soon."""
    values = values.to(row_ptr.dtype.element_ty)
    tl.store(row_ptr + cols, values, mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def near_mean(row_ptr, n_cols):
    """Return the mean of four values of a row, rounded to their dtype, so that it can stand in for one.

    All threads load the same four, so none waits for another. One value alone may lie far out, and would
    cost digits.
    """
    ends = tl.load(row_ptr).to(tl.float32) + tl.load(row_ptr + n_cols - 1).to(tl.float32)
    middle = tl.load(row_ptr + n_cols // 3).to(tl.float32) + tl.load(row_ptr + n_cols // 2).to(tl.float32)
    return (0.25 * (ends + middle)).to(row_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def mean_and_rstd(total, squares, n, eps):
    """Return the mean and 1 / sqrt(variance + eps) of n numbers, from their sum and that of their squares."""
    mean = total / n
    variance = tl.maximum(squares / n - mean * mean, 0.0)
    # torch.compile passes eps in fp64, which would spread.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def scale_and_store(y_row, n, weight_ptr, bias_ptr, cols, n_cols):
    """Store n * weight + bias to columns of a row."""
    weight = load(weight_ptr, cols, n_cols, 0.0, AGAIN=True)
    bias = load(bias_ptr, cols, n_cols, 0.0, AGAIN=True)
    store(y_row, cols, n_cols, n * weight + bias)


@triton.autotune(
    configs=LANES_OF_KEPT_TILES,
    key=["n_cols"],
    prune_configs_by={"early_config_prune": for_forward},
)
@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    KEPT: tl.constexpr,
    LANES: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = columns(TILE, LANES)
    near = near_mean(x_row, n_cols)
    sums = tl.zeros((LANES,), dtype=tl.float32)
    squares = tl.zeros((LANES,), dtype=tl.float32)
    last = (TILES - 1) * TILE + cols
    for i in range(TILES - KEPT):
        # With near in place of the columns outside, d is 0 there.
        d = load(x_row, i * TILE + cols, n_cols, near, AGAIN=True) - near
        sums += tl.sum(d, axis=0)
        squares += tl.sum(d * d, axis=0)
    if KEPT:
        # The compiler keeps the tile in fp32, in twice the registers of 16 bits. An assembly instruction
        # behind the sums would make it convert x again, but the screen of students' files forbids assembly.
        x = load(x_row, last, n_cols, 0.0, AGAIN=False)
        d = tl.where(last < n_cols, x - near, 0.0)
        sums += tl.sum(d, axis=0)
        squares += tl.sum(d * d, axis=0)
    off, rstd = mean_and_rstd(tl.sum(sums, axis=0), tl.sum(squares, axis=0), n_cols, eps)
    if KEPT:
        n = (x - near - off) * rstd
        scale_and_store(y_row, n, weight_ptr, bias_ptr, last, n_cols)
    for i in range(KEPT, TILES):
        # Backwards: what was read last is nearest.
        at = (TILES - 1 - i) * TILE + cols
        n = (load(x_row, at, n_cols, 0.0, AGAIN=False) - near - off) * rstd
        scale_and_store(y_row, n, weight_ptr, bias_ptr, at, n_cols)


@triton.jit
def four_sums(a, b, c, d):
    """Return the sums of four tiles.

    They are taken inside threads, inside warps, and then over the warps for all four at once, so that threads
    wait for each other once instead of four times.
    """
    a = tl.sum(a, axis=0)
    b = tl.sum(b, axis=0)
    c = tl.sum(c, axis=0)
    d = tl.sum(d, axis=0)
    four = tl.join(tl.join(a, b), tl.join(c, d))
    of_warps = tl.sum(tl.reshape(four, (four.shape[0] // 256, 256, 2, 2)), axis=1)
    ab, cd = tl.split(tl.sum(of_warps, axis=0))
    sum_a, sum_b = tl.split(ab)
    sum_c, sum_d = tl.split(cd)
    return sum_a, sum_b, sum_c, sum_d


@triton.jit
def write_four(ptr, a, b, c, d):
    """Store four numbers side by side."""
    tl.store(ptr, a)
    tl.store(ptr + 1, b)
    tl.store(ptr + 2, c)
    tl.store(ptr + 3, d)


@triton.jit
def sums_of_fours(ptr, COUNT: tl.constexpr):
    """Return the four sums over COUNT groups of four numbers that write_four left side by side."""
    groups = ptr + 4 * tl.arange(0, COUNT)
    a = tl.sum(tl.load(groups), axis=0)
    b = tl.sum(tl.load(groups + 1), axis=0)
    c = tl.sum(tl.load(groups + 2), axis=0)
    d = tl.sum(tl.load(groups + 3), axis=0)
    return a, b, c, d


@triton.autotune(
    configs=LANES_AND_STAGES,
    key=["n_cols", "FIRST"],
    prune_configs_by={"early_config_prune": for_backward},
)
@triton.jit
def gradient_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    parts_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    FIRST: tl.constexpr,
    LANES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - n * mean(g * n)), with g = dy * weight and n the normalised row.

    Program (i, k) takes rows i, i + programs, and so on, and owns tile k of them. Its sums over these rows,
    of dy * n and of dy, go to row i of the two matrices in sums, (2, programs, n_cols) fp32. Where a row has
    several tiles, a FIRST launch stores what each adds to four sums of its row: parts is (n_rows, TILES, 4).
    """
    first = tl.program_id(axis=0).to(tl.int64)
    programs = tl.num_programs(axis=0)
    tile = tl.program_id(axis=1)
    cols = tile * TILE + columns(TILE, LANES)
    valid = cols < n_cols
    weight = load(weight_ptr, cols, n_cols, 0.0, AGAIN=True)
    dweight = tl.zeros(cols.shape, dtype=tl.float32)
    dbias = tl.zeros(cols.shape, dtype=tl.float32)
    for row in tl.range(first, n_rows, programs, num_stages=STAGES):
        x_row = x_ptr + row * stride_x
        parts_row = parts_ptr + row * TILES * 4
        dy = load(dy_ptr + row * stride_dy, cols, n_cols, 0.0, AGAIN=False)
        x = load(x_row, cols, n_cols, 0.0, AGAIN=False)
        d = tl.where(valid, x - near_mean(x_row, n_cols), 0.0)
        g = dy * weight
        if FIRST or TILES == 1:
            sum_d, squares, sum_g, products = four_sums(d, d * d, g, g * d)
        else:
            sum_d, squares, sum_g, products = sums_of_fours(parts_row, TILES)
        if FIRST:
            write_four(parts_row + tile * 4, sum_d, squares, sum_g, products)
        else:
            off, rstd = mean_and_rstd(sum_d, squares, n_cols, eps)
            mean_g = sum_g / n_cols
            mean_gn = (products - sum_g * off) / n_cols * rstd
            n = (d - off) * rstd
            store(dx_ptr + row * stride_dx, cols, n_cols, rstd * (g - mean_g - n * mean_gn))
            dweight += dy * n
            dbias += dy
    # A FIRST launch leaves zeros, and the next one stores over them.
    tl.store(sums_ptr + first * n_cols + cols, dweight, mask=valid)
    tl.store(sums_ptr + (programs + first) * n_cols + cols, dbias, mask=valid)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, as in the solution."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, n_cols, x.stride(0), out.stride(0), eps, **tiles_of_forward(n_cols))
    return out


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, as in the solution."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    sizes = tiles(n_cols, WIDEST_TILE)
    # One program for each multiprocessor where a row is one tile, and more where rows are short.
    programs = max(1, min(n_rows, PROGRAMS * WIDEST_TILE // n_cols))
    parts = torch.empty((n_rows, sizes["TILES"], 4), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, programs, n_cols), device=x.device, dtype=torch.float32)
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch = on(gradient_kernel, x)[(programs, sizes["TILES"])]
    if sizes["TILES"] > 1:
        launch(dy, x, weight, dx, parts, sums, n_rows, n_cols, *strides, eps, FIRST=True, **sizes)
    launch(dy, x, weight, dx, parts, sums, n_rows, n_cols, *strides, eps, FIRST=False, **sizes)
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::tuned_layer_norm", mutates_args=())
def forward_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)


@triton_op("course::tuned_layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward, likewise."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return forward_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)

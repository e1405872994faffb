"""EXPECT PASS from layer_norm_linear_forward: a Gluon kernel, where a warp loads and others multiply"""

import rows
import tiles
import torch
import triton
import triton.language as tl
import weights
from rows import columns, load, near_mean
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# For each width of a tile, the stages that leave room for the blocks of it on their way out, in 227 KB.
STAGES = {256: 4, 128: 6, 64: 8}
BLOCK_M, BLOCK_K, GROUP_M = 128, 64, 16
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def prepare_kernel(x_ptr, gamma_ptr, beta_ptr, weight_ptr, bias_ptr, stats_ptr, scaled_ptr, sums_ptr, n_rows,
                   n_cols, stride_x, stride_weight, eps, TILE: tl.constexpr, TILES: tl.constexpr,
                   LANES: tl.constexpr):  # fmt: skip
    """As the solution has it: mean and 1 / sqrt(variance + eps) of each row; and a row of the weight each."""
    row = tl.program_id(axis=0)
    if row < n_rows:
        x_row, cols = x_ptr + row.to(tl.int64) * stride_x, columns(TILE, LANES)
        near, sums = near_mean(x_row, n_cols), tl.zeros((LANES,), dtype=tl.float32)
        squares = sums
        for i in range(TILES):
            inside = i * TILE + cols < n_cols
            d = tl.where(inside, load(x_row + i * TILE + cols, inside, KEEP=True) - near, 0.0)
            sums, squares = sums + tl.sum(d, axis=0), squares + tl.sum(d * d, axis=0)
        off, rstd = rows.moments(tl.sum(sums, axis=0), tl.sum(squares, axis=0), n_cols, eps)
        tl.store(stats_ptr + 2 * row, near + off)
        tl.store(stats_ptr + 2 * row + 1, rstd)
    else:
        weights.prepare_row(row - n_rows, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr,
                            n_cols, stride_weight, TILE, TILES, LANES)  # fmt: skip


@triton.autotune(tiles.BY_TILE, ["M", "N", "K"], prune_configs_by={"early_config_prune": tiles.fitting})
@triton.jit
def linear_kernel(x_ptr, scaled_ptr, out_ptr, stats_ptr, sums_ptr, M, N, K, stride_x, stride_out,
        TMA: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """As the solution but row by row: for other GPUs, fp32, and rows that the copy engine does not take."""
    x = tiles.described(x_ptr, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
    scaled = tiles.described(scaled_ptr, N, K, K, BLOCK_N, BLOCK_K, TMA)
    out = tiles.described(out_ptr, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)
    count = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(axis=0), count, tl.num_programs(axis=0), flatten=True):
        m, n = tile // tl.cdiv(N, BLOCK_N) * BLOCK_M, tile % tl.cdiv(N, BLOCK_N) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tiles.load_tile(x, m, k, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
            b = tiles.load_tile(scaled, n, k, N, K, K, BLOCK_N, BLOCK_K, TMA)
            acc = tl.dot(a, b.T, acc, input_precision="ieee")
        mean, rstd = tiles.pairs(stats_ptr, m, M, BLOCK_M)
        for left in tl.static_range(0, BLOCK_N, BLOCK_N // 2):
            total, shift = tiles.pairs(sums_ptr, n + left, N, BLOCK_N // 2)
            y = rstd[:, None] * (tiles.half(acc, left) - mean[:, None] * total[None, :]) + shift[None, :]
            tiles.store_tile(out, y, m, n + left, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)


@gluon.jit
def place(tile, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """First row and first column of a tile, in the grouped order."""
    per_group = GROUP_M * gl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    height = gl.minimum(gl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + tile % per_group % height) * BLOCK_M, tile % per_group // height * BLOCK_N


@gluon.jit
def pairs(ptr, at, n):
    """Both fp32 numbers of each pair, 0 from pair n on. A pair comes as one int64: one load for both."""
    both = gl.load(ptr + at, mask=at < n, other=0)
    low, high = both.to(gl.int32), (both >> 32).to(gl.int32)
    return low.to(gl.float32, bitcast=True), high.to(gl.float32, bitcast=True)


@gluon.jit
def blocks(acc, COLS: gl.constexpr):
    """The tuple of blocks of COLS columns that lie side by side in acc."""
    if acc.shape[1] == COLS:
        return (acc,)
    else:
        left, right = acc.reshape([acc.shape[0], 2, acc.shape[1] // 2]).permute(0, 2, 1).split()
        return blocks(left, COLS) + blocks(right, COLS)


@gluon.jit
def load_tiles(x_desc, scaled_desc, M, N, K, ring, GROUP_M: gl.constexpr):
    """The loading warp fills the ring, and goes on to the next tile while the last one is being stored."""
    a_ring, b_ring, full, empty = ring
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_N: gl.constexpr = b_ring.shape[1]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for k in range(0, K, BLOCK_K):
            slot = step % STAGES
            # On a new barrier the round before counts as over: the first round finds every slot empty.
            mbarrier.wait(empty.index(slot), (step // STAGES + 1) & 1)
            mbarrier.wait(empty.index(STAGES + slot), (step // STAGES + 1) & 1)
            mbarrier.expect(full.index(slot), (BLOCK_M + BLOCK_N) * BLOCK_K * 2)
            tma.async_copy_global_to_shared(x_desc, [m, k], full.index(slot), a_ring.index(slot))
            tma.async_copy_global_to_shared(scaled_desc, [n, k], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def multiply_tiles(
    HALF: gl.constexpr, out_desc, stats_ptr, sums_ptr, M, N, K, ring, outgoing, GROUP_M: gl.constexpr
):
    """A warpgroup owns the upper or the lower half of each tile, and says for itself which slots are free."""
    a_ring, b_ring, full, empty = ring
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_M: gl.constexpr = a_ring.shape[1]
    BLOCK_N: gl.constexpr = b_ring.shape[1]
    ROWS: gl.constexpr = out_desc.block_shape[0]
    COLS: gl.constexpr = out_desc.block_shape[1]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    if HALF == 1:
        # It starts a step behind the other, and stays behind: while one stores, the other multiplies.
        mbarrier.wait(empty.index(0), 0)
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N), gl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        m += HALF * ROWS
        # What the rows and the first columns need arrives while products are made.
        mean, rstd = pairs(stats_ptr, m + gl.arange(0, ROWS, gl.SliceLayout(1, PART)), M)
        cols = n + gl.arange(0, COLS, gl.SliceLayout(0, PART))
        total, shift = pairs(sums_ptr, cols, N)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, SUMS)
        for k in range(0, K, a_ring.shape[2]):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            a, b = a_ring.index(slot).slice(HALF * ROWS, ROWS), b_ring.index(slot).permute((1, 0))
            acc = hopper.warpgroup_mma(a, b, acc, use_acc=k > 0, is_async=True)
            # One product stays in flight; the one before it has ended, and its slot is free.
            acc = hopper.warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index(HALF * STAGES + (step + STAGES - 1) % STAGES), pred=k > 0)
            step += 1
        acc = hopper.warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(HALF * STAGES + (step + STAGES - 1) % STAGES))
        parts = blocks(acc, COLS)
        for i in gl.static_range(BLOCK_N // COLS):
            part = gl.convert_layout(parts[i], PART, assert_trivial=True)
            next_total, next_shift = pairs(sums_ptr, cols + (i + 1) * COLS, N)
            y = rstd[:, None] * (part - mean[:, None] * total[None, :]) + shift[None, :]
            total, shift = next_total, next_shift
            # Two blocks take turns: the store before the last one has read this one.
            tma.store_wait(1)
            block = outgoing.index(2 * HALF + i % 2)
            block.store(y.to(out_desc.dtype))
            hopper.fence_async_shared()
            tma.async_copy_shared_to_global(out_desc, [m, n + i * COLS], block)
    tma.store_wait(0)


@gluon.jit
def specialised_kernel(x_desc, scaled_desc, out_desc, stats_ptr, sums_ptr, M, N, K,
                       STAGES: gl.constexpr, GROUP_M: gl.constexpr):  # fmt: skip
    """As linear_kernel, for descriptors, with each pair in stats and sums as one int64, and no more programs
    than tiles.
    """
    a_shape: gl.constexpr = [STAGES] + x_desc.block_shape  # noqa: RUF005, no star in a kernel
    b_shape: gl.constexpr = [STAGES] + scaled_desc.block_shape  # noqa: RUF005, no star in a kernel
    out_shape: gl.constexpr = [4] + out_desc.block_shape  # noqa: RUF005, no star in a kernel
    a_ring = gl.allocate_shared_memory(x_desc.dtype, a_shape, x_desc.layout)
    b_ring = gl.allocate_shared_memory(scaled_desc.dtype, b_shape, scaled_desc.layout)
    outgoing = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
        mbarrier.init(empty.index(STAGES + slot), count=1)
    hopper.fence_async_shared()
    ring = (a_ring, b_ring, full, empty)
    gl.warp_specialize(
        [
            (
                multiply_tiles,
                (gl.constexpr(0), out_desc, stats_ptr, sums_ptr, M, N, K, ring, outgoing, GROUP_M),
            ),
            (
                multiply_tiles,
                (gl.constexpr(1), out_desc, stats_ptr, sums_ptr, M, N, K, ring, outgoing, GROUP_M),
            ),
            (load_tiles, (x_desc, scaled_desc, M, N, K, ring, GROUP_M)),
        ],
        [4, 1],
        [240, 24],
    )


def width_and_programs(M, N, many):
    """The width of a tile with which `many` programs end soonest, and how many share the tiles evenly."""

    def count(width):
        return triton.cdiv(M, BLOCK_M) * triton.cdiv(N, width)

    # A narrow tile loads more for what it multiplies: as if each were 64 columns wider.
    width = min(STAGES, key=lambda width: triton.cdiv(count(width), many) * (width + 64))
    # No more programs than the number of rounds asks for: all rounds are full, and so are the groups in L2.
    return width, triton.cdiv(count(width), triton.cdiv(count(width), many))


def describe(matrix, *block):
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, list(block), layout)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    (M, K), N = x.shape, weight.shape[0]
    out, stats, scaled, sums = weights.scratch(x, weight, out)
    arguments = x, gamma, beta, weight, bias, stats, scaled, sums, M, K, x.stride(0), weight.stride(0), eps
    prepare_kernel[(M + N,)](*arguments, **rows.tiles(K))
    described = tiles.describable(x, scaled, out, traced=False)
    if described and x.is_cuda and torch.cuda.get_device_capability(x.device)[0] == 9:
        many = torch.cuda.get_device_properties(x.device).multi_processor_count
        width, programs = width_and_programs(M, N, many)
        x_desc, scaled_desc = describe(x, BLOCK_M, BLOCK_K), describe(scaled, width, BLOCK_K)
        out_desc = describe(out, BLOCK_M // 2, min(64, width // 2))
        pairs_of = stats.view(torch.int64), sums.view(torch.int64)
        launch = specialised_kernel[(programs,)]
        launch(x_desc, scaled_desc, out_desc, *pairs_of, M, N, K, STAGES[width], GROUP_M, num_warps=4)
    else:
        arguments = x, scaled, out, stats, sums, M, N, K, x.stride(0), out.stride(0), described
        linear_kernel[tiles.programs(x, M, N)](*arguments)
    return out

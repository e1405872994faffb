"""EXPECT PASS from layer_norm_linear_forward: a Gluon kernel, where a warp loads and others multiply"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# For each width of a tile, the stages that leave room for the blocks of it on their way out, in 227 KB.
STAGES = {256: 4, 128: 6, 64: 8}
BLOCK_M, BLOCK_K, GROUP_M = 128, 64, 16
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
WIDEST = 8192  # columns of a tile of a row
# A thread has 8 neighbouring lanes, 16 bytes in 16 bits, so LANES is 256 a warp.
# 32 warps leave 64 registers for each thread: said, the compiler keeps to them better than it does unasked.
BY_LANES = [
    triton.Config({"LANES": 256 * w}, num_warps=w, maxnreg=64 if w == 32 else None)
    for w in (1, 2, 4, 8, 16, 32)
]


def fitting(configs, named_args, **kwargs):
    """Configs with 8 to 32 values of a tile for each thread: fewer leave threads idle, more do not fit."""
    return [config for config in configs if 8 <= kwargs["TILE"] // (32 * config.num_warps) <= 32]


@triton.jit
def columns(TILE: tl.constexpr, LANES: tl.constexpr):
    """Columns of a tile as TILE / LANES by LANES: what is reduced along axis 0 stays inside a thread."""
    return tl.arange(0, TILE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def load(ptrs, inside, KEEP: tl.constexpr = False):
    """Elements in fp32, and 0 where nothing is. Those to KEEP are read again, and should stay near."""
    x = tl.load(ptrs, mask=inside, other=0.0, eviction_policy="evict_last" if KEEP else "evict_first")
    return x.to(tl.float32)


@triton.jit
def near_mean(row_ptr, n_cols):
    """The mean of four values of a row, rounded to their dtype, so that it can stand in for one. Each thread
    asks for all four, and none waits for another; one value alone may lie far out, and would cost digits.
    """
    ends = tl.load(row_ptr).to(tl.float32) + tl.load(row_ptr + n_cols - 1).to(tl.float32)
    middle = tl.load(row_ptr + n_cols // 3).to(tl.float32) + tl.load(row_ptr + n_cols // 2).to(tl.float32)
    return (0.25 * (ends + middle)).to(row_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def prepare_row_of_x(row, x_ptr, stats_ptr, n_cols, stride, eps, TILE: tl.constexpr, TILES: tl.constexpr,
                     LANES: tl.constexpr):  # fmt: skip
    """Mean and 1 / sqrt(variance + eps) of a row to stats[row, :], (n_rows, 2) fp32."""
    x_row, cols = x_ptr + row.to(tl.int64) * stride, columns(TILE, LANES)
    near, sums = near_mean(x_row, n_cols), tl.zeros((LANES,), dtype=tl.float32)
    squares = sums
    for i in range(TILES):
        inside = i * TILE + cols < n_cols
        d = tl.where(inside, load(x_row + i * TILE + cols, inside, KEEP=True) - near, 0.0)
        sums, squares = sums + tl.sum(d, axis=0), squares + tl.sum(d * d, axis=0)
    off = tl.sum(sums, axis=0) / n_cols
    variance = tl.maximum(tl.sum(squares, axis=0) / n_cols - off * off, 0.0)
    tl.store(stats_ptr + 2 * row, near + off)
    tl.store(stats_ptr + 2 * row + 1, tl.rsqrt(variance + eps))


@triton.jit
def prepare_row_of_weight(row, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, n_cols,
                          stride, TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """A row of gamma * weight, rounded to its dtype, to scaled. The sum of what was rounded goes to
    sums[row, 0], and that of beta * weight, plus the bias, to sums[row, 1]; sums is (n_rows, 2) fp32.
    """
    cols, total = columns(TILE, LANES), tl.zeros((LANES,), dtype=tl.float32)
    shift = total
    for i in range(TILES):
        at = i * TILE + cols
        w = load(weight_ptr + row.to(tl.int64) * stride + at, at < n_cols)
        scaled = (w * load(gamma_ptr + at, at < n_cols, KEEP=True)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row.to(tl.int64) * n_cols + at, scaled, mask=at < n_cols)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr + at, at < n_cols, KEEP=True), axis=0)
    tl.store(sums_ptr + 2 * row, tl.sum(total, axis=0))
    tl.store(sums_ptr + 2 * row + 1, tl.sum(shift, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.autotune(configs=BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def prepare_kernel(x_ptr, gamma_ptr, beta_ptr, weight_ptr, bias_ptr, stats_ptr, scaled_ptr, sums_ptr, n_rows,
                   n_cols, stride_x, stride_weight, eps, TILE: tl.constexpr, TILES: tl.constexpr,
                   LANES: tl.constexpr):  # fmt: skip
    """All that comes before the product: the first n_rows programs have a row of x, others one of weight."""
    row = tl.program_id(axis=0)
    if row < n_rows:
        prepare_row_of_x(row, x_ptr, stats_ptr, n_cols, stride_x, eps, TILE, TILES, LANES)
    else:
        prepare_row_of_weight(row - n_rows, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr,
                              n_cols, stride_weight, TILE, TILES, LANES)  # fmt: skip


@triton.jit
def linear_kernel(x_ptr, scaled_ptr, out_ptr, stats_ptr, sums_ptr, M, N, K, stride_x, stride_out,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """A tile a program: for other GPUs, fp32, and rows that the copy engine does not take."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows * stride_x + k, mask=(rows < M) & (k < K), other=0.0)
        scaled_ptrs = scaled_ptr + cols * K + k[:, None]
        scaled = tl.load(scaled_ptrs, mask=(cols < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, scaled, acc, input_precision="ieee")
    mean = tl.load(stats_ptr + 2 * rows, mask=rows < M, other=0.0)
    rstd = tl.load(stats_ptr + 2 * rows + 1, mask=rows < M, other=0.0)
    total = tl.load(sums_ptr + 2 * cols, mask=cols < N, other=0.0)
    shift = tl.load(sums_ptr + 2 * cols + 1, mask=cols < N, other=0.0)
    y = rstd * (acc - mean * total) + shift
    tl.store(out_ptr + rows * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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


def describable(*matrices):
    """Whether the copy engine takes them: 16 bits, and rows that start at multiples of 16 bytes."""
    for x in matrices:
        apart = x.stride(0) * x.element_size()
        if x.dtype == torch.float32 or x.stride(1) != 1 or apart <= 0 or apart % 16 or x.data_ptr() % 16:
            return False
    return True


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    stats, sums = (torch.empty((rows, 2), device=x.device, dtype=torch.float32) for rows in (M, N))
    arguments = x, gamma, beta, weight, bias, stats, scaled, sums, M, K, x.stride(0), weight.stride(0), eps
    size = max(256, triton.next_power_of_2(K))
    prepare_kernel[(M + N,)](*arguments, TILE=min(size, WIDEST), TILES=max(1, size // WIDEST))
    hopper_gpu = x.is_cuda and torch.cuda.get_device_capability(x.device)[0] == 9
    if hopper_gpu and describable(x, scaled, out):
        many = torch.cuda.get_device_properties(x.device).multi_processor_count
        width, programs = width_and_programs(M, N, many)
        x_desc, scaled_desc = describe(x, BLOCK_M, BLOCK_K), describe(scaled, width, BLOCK_K)
        out_desc = describe(out, BLOCK_M // 2, min(64, width // 2))
        pairs_of = stats.view(torch.int64), sums.view(torch.int64)
        launch = specialised_kernel[(programs,)]
        launch(x_desc, scaled_desc, out_desc, *pairs_of, M, N, K, STAGES[width], GROUP_M, num_warps=4)
    else:
        arguments = x, scaled, out, stats, sums, M, N, K, x.stride(0), out.stride(0)
        grid = (triton.cdiv(N, 64), triton.cdiv(M, 64))
        linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return out

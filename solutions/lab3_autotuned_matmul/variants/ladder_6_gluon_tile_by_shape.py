"""EXPECT PASS from matmul and matmul_bias_relu on a GPU: ladder 6, as ladder 5 with a tile for the shape."""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# For each width of a tile, the stages that leave room for two quarter tiles on their way out, in 227 KB.
STAGES = {256: 4, 128: 6, 64: 8}
BLOCK_M, BLOCK_K, GROUP_M = 128, 64, 16
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@gluon.jit
def place(tile, c_desc, GROUP_M: gl.constexpr):
    """First row and column of a tile, which has four blocks of c_desc, in the grouped order."""
    tiles_m = gl.cdiv(c_desc.shape[0], 2 * c_desc.block_shape[0])
    per_group = GROUP_M * gl.cdiv(c_desc.shape[1], 2 * c_desc.block_shape[1])
    first = tile // per_group * GROUP_M
    height = gl.minimum(tiles_m - first, GROUP_M)
    m = (first + tile % per_group % height) * (2 * c_desc.block_shape[0])
    return m, tile % per_group // height * (2 * c_desc.block_shape[1])


@gluon.jit
def load_tiles(a_desc, b_desc, c_desc, tiles, ring, GROUP_M: gl.constexpr, NT: gl.constexpr):
    """The loading warp fills the ring, and goes on to the next tile while the last one is being stored."""
    a_ring, b_ring, full, empty = ring
    STAGES: gl.constexpr = a_ring.shape[0]
    BLOCK_K: gl.constexpr = a_ring.shape[2]
    WIDTHS: gl.constexpr = 2 * (c_desc.block_shape[0] + c_desc.block_shape[1])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m, n = place(tile, c_desc, GROUP_M)
        for k in range(0, a_desc.shape[1], BLOCK_K):
            slot = step % STAGES
            # On a new barrier the round before counts as over: the first round finds every slot empty.
            mbarrier.wait(empty.index(slot), (step // STAGES + 1) & 1)
            mbarrier.expect(full.index(slot), WIDTHS * BLOCK_K * (a_desc.dtype.primitive_bitwidth // 8))
            b_at = [n, k] if NT else [k, n]
            tma.async_copy_global_to_shared(a_desc, [m, k], full.index(slot), a_ring.index(slot))
            tma.async_copy_global_to_shared(b_desc, b_at, full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def multiply_tiles(
    HALF: gl.constexpr, c_desc, bias_ptr, c_part, K, tiles, ring, GROUP_M: gl.constexpr, NT: gl.constexpr
):
    """A warpgroup owns the upper or the lower half of each tile, and says for itself what it has read."""
    a_ring, b_ring, full, empty = ring
    STAGES: gl.constexpr = a_ring.shape[0]
    ROWS: gl.constexpr = c_desc.block_shape[0]
    COLS: gl.constexpr = c_desc.block_shape[1]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * COLS, 16])
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m, n = place(tile, c_desc, GROUP_M)
        acc = gl.zeros([ROWS, 2 * COLS], gl.float32, SUMS)
        for k in range(0, K, a_ring.shape[2]):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            a = a_ring.index(slot).slice(HALF * ROWS, ROWS)
            b = b_ring.index(slot).permute((1, 0)) if NT else b_ring.index(slot)
            acc = hopper.warpgroup_mma(a, b, acc, use_acc=k > 0, is_async=True)
            # One product stays in flight; the one before it has ended, and its slot is free.
            acc = hopper.warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), pred=k > 0)
            step += 1
        acc = hopper.warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES))
        left, right = acc.reshape([ROWS, 2, COLS]).permute(0, 2, 1).split()
        for side in gl.static_range(2):
            part = gl.convert_layout(left if side == 0 else right, PART, assert_trivial=True)
            if bias_ptr is not None:
                cols = n + side * COLS + gl.arange(0, COLS, gl.SliceLayout(0, PART))
                bias = gl.load(bias_ptr + cols, mask=cols < c_desc.shape[1], other=0.0)
                part = gl.maximum(part + bias.to(gl.float32)[None, :], 0.0)
            tma.store_wait(0)  # until the store before has read the buffer
            c_part.store(part.to(c_desc.dtype))
            hopper.fence_async_shared()
            tma.async_copy_shared_to_global(c_desc, [m + HALF * ROWS, n + side * COLS], c_part)
    tma.store_wait(0)


@gluon.jit
def specialised_kernel(
    a_desc, b_desc, c_desc, bias_ptr, STAGES: gl.constexpr, GROUP_M: gl.constexpr, NT: gl.constexpr
):
    """c = a @ b, or relu(a @ b + bias); program i takes tiles i, i + programs and so on."""
    a_shape: gl.constexpr = [STAGES] + a_desc.block_shape  # noqa: RUF005, no star in a kernel
    b_shape: gl.constexpr = [STAGES] + b_desc.block_shape  # noqa: RUF005, no star in a kernel
    c_shape: gl.constexpr = [2] + c_desc.block_shape  # noqa: RUF005, no star in a kernel
    a_ring = gl.allocate_shared_memory(a_desc.dtype, a_shape, a_desc.layout)
    b_ring = gl.allocate_shared_memory(b_desc.dtype, b_shape, b_desc.layout)
    c_parts = gl.allocate_shared_memory(c_desc.dtype, c_shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    hopper.fence_async_shared()
    K = a_desc.shape[1]
    tiles_m = gl.cdiv(c_desc.shape[0], 2 * c_desc.block_shape[0])
    tiles = tiles_m * gl.cdiv(c_desc.shape[1], 2 * c_desc.block_shape[1])
    ring = (a_ring, b_ring, full, empty)
    upper, lower = c_parts.index(0), c_parts.index(1)
    gl.warp_specialize(
        [
            (multiply_tiles, (gl.constexpr(0), c_desc, bias_ptr, upper, K, tiles, ring, GROUP_M, NT)),
            (multiply_tiles, (gl.constexpr(1), c_desc, bias_ptr, lower, K, tiles, ring, GROUP_M, NT)),
            (load_tiles, (a_desc, b_desc, c_desc, tiles, ring, GROUP_M, NT)),
        ],
        [4, 1],
        [240, 24],
    )


@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn, BLOCK: tl.constexpr, STEP: tl.constexpr
):
    """The same for any dtype, strides and GPU: one program a tile, and no descriptors."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, STEP):
        ks = start + tl.arange(0, STEP).to(tl.int64)
        a = tl.load(a_ptr + rows * am + ks[None, :] * ak, (rows < M) & (ks[None, :] < K), 0.0)
        b = tl.load(b_ptr + ks[:, None] * bk + cols * bn, (ks[:, None] < K) & (cols < N), 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if bias_ptr is not None:
        acc = tl.maximum(acc + tl.load(bias_ptr + cols, cols < N, 0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + rows * cm + cols * cn, acc.to(c_ptr.dtype.element_ty), (rows < M) & (cols < N))


def describable(matrix):
    """The copy engine takes rows without gaps inside that start at multiples of 16 bytes."""
    apart = matrix.stride(0) * matrix.element_size()
    return matrix.stride(1) == 1 and apart > 0 and apart % 16 == 0 and matrix.data_ptr() % 16 == 0


def describe(matrix, *block):
    layout = gl.NVMMASharedLayout.get_default_for(list(block), DTYPES[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, list(block), layout)


def width_and_programs(M, N, many):
    """The width of a tile with which `many` programs end soonest, and how many share the tiles evenly."""

    def tiles(width):
        return triton.cdiv(M, BLOCK_M) * triton.cdiv(N, width)

    # A narrow tile loads more for what it multiplies: as if each were 64 columns wider.
    width = min(STAGES, key=lambda width: triton.cdiv(tiles(width), many) * (width + 64))
    # No more programs than the number of rounds asks for: all rounds are full, and so are the groups in L2.
    return width, triton.cdiv(tiles(width), triton.cdiv(tiles(width), many))


def launch(a, b, bias, out):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    on_hopper = triton.runtime.driver.active.get_current_target().arch == 90
    nt = not describable(b)
    by_rows = b.T if nt else b
    if on_hopper and a.dtype in DTYPES and describable(a) and describable(by_rows) and describable(out):
        many = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 132
        width, programs = width_and_programs(M, N, many)
        a_desc, c_desc = describe(a, BLOCK_M, BLOCK_K), describe(out, BLOCK_M // 2, width // 2)
        b_desc = describe(b.T, width, BLOCK_K) if nt else describe(b, BLOCK_K, width)
        specialised_kernel[(programs,)](
            a_desc, b_desc, c_desc, bias, STAGES=STAGES[width], GROUP_M=GROUP_M, NT=nt, num_warps=4
        )
    else:
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        plain_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BLOCK=64, STEP=32
        )
    return out


def matmul(a, b, *, out=None):
    return launch(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return launch(a, b, bias, out)

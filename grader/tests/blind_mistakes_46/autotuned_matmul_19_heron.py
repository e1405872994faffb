# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `in_plane`, `plane = M.to(tl.int64) * N`: an integer argument that is 1 is a constexpr, which has no `.to`, so both kernels fail to compile for M = 1 (such as the case 1 x 1 x 1). It should convert a block or a program number instead, such as `part.to(tl.int64) * M * N`, or take the plane's size as the workspace's stride from the host. All other M are right.
"""Matrix product in two launches: sums of parts of K into an fp32 workspace, then their total and the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]
# The block of the second kernel.
ROWS, COLS = 16, 128


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def in_plane(part, rows, cols, M, N):
    """Offsets in the workspace, which has one contiguous M x N plane for each part of K."""
    plane = M.to(tl.int64) * N
    return part * plane + rows[:, None] * N + cols[None, :]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Rows and columns of one of the tiles."""
    wide = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * wide
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64), cols.to(tl.int64)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K, parts, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    part = pid // tiles
    rows, cols = place(pid % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    length = tl.cdiv(tl.cdiv(K, parts), BLOCK_K) * BLOCK_K
    begin = part * length
    end = tl.minimum(begin + length, K)
    lane = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + (begin + lane)[None, :] * stride_ak
    b_ptrs = b_ptr + (begin + lane)[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (lane[None, :] < end - k), other=0.0)
        b = tl.load(b_ptrs, mask=(lane[:, None] < end - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(work_ptr + in_plane(part, rows, cols, M, N), acc, mask=inside)


@triton.jit
def total_kernel(
    work_ptr, c_ptr, bias_ptr, M, N, parts, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    wide = tl.cdiv(N, COLS)
    rows = (pid // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % wide * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for part in range(parts):
        total += tl.load(work_ptr + in_plane(part, rows, cols, M, N), mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # As many parts as give each of 132 multiprocessors work, none of them short.
    parts = max(1, min(132 // (triton.cdiv(M, 128) * triton.cdiv(N, 128)), K // 256))
    work = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (  # noqa: E731
        parts * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
    )
    parts_kernel[grid](a, b, work, M, N, K, parts, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    total_kernel[(triton.cdiv(M, ROWS) * triton.cdiv(N, COLS),)](
        work, out, bias, M, N, parts, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, ROWS=ROWS, COLS=COLS
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)

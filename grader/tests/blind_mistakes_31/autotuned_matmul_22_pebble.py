# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | K is split into slabs, and the last kernel adds slab 0 twice: in finish_kernel `total` starts as the load of slab 0, and the loop `for part in range(SPLIT)` begins with slab 0 again. Shows in every case of both functions: the sums are exactly doubled where only slab 0 has products (K <= BLOCK_K, or SPLIT = 1), else the blocks of K of slab 0 count twice. It should start from zeros, or move the pointers first and loop over SPLIT - 1 slabs
"""Matrix product with K split among programs: slabs of partial sums, and a kernel that adds them up."""

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
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    group = tile // in_group
    within = tile - group * in_group
    first = group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def slab_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K, slab,
    stride_am, stride_ak, stride_bk, stride_bn, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """work[part] = the products of the blocks part, part + SPLIT, part + 2 SPLIT, ... of K."""
    part = tl.program_id(axis=1)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_lines = a_ptr + rows[:, None] * stride_am
    b_lines = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(part * BLOCK_K, K, SPLIT * BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_lines + ks[None, :] * stride_ak, mask=row_exists & (ks[None, :] < K), other=0.0)
        b = tl.load(b_lines + ks[:, None] * stride_bk, mask=col_exists & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    spots = work_ptr + part.to(tl.int64) * slab + rows[:, None] * N + cols[None, :]
    tl.store(spots, acc, mask=row_exists & col_exists)


@triton.jit
def finish_kernel(
    work_ptr, bias_ptr, c_ptr, M, N, slab, stride_cm, stride_cn,
    SPLIT: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the slabs, always in the same order, with or without bias and ReLU."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    slab_ptrs = work_ptr + rows * N + cols
    total = tl.load(slab_ptrs, mask=inside, other=0.0)
    for part in range(SPLIT):
        total += tl.load(slab_ptrs, mask=inside, other=0.0)
        slab_ptrs += slab
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # A result of few tiles leaves most multiprocessors idle unless they share K.
    split = 4 if triton.cdiv(M, 128) * triton.cdiv(N, 128) < 64 else 1
    work = torch.empty((split, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), split)  # noqa: E731
    slab_kernel[grid](
        a, b, work, M, N, K, M * N, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SPLIT=split
    )
    finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        work, bias, out, M, N, M * N, out.stride(0), out.stride(1),
        SPLIT=split, BIAS_RELU=bias_relu, ROWS=16, COLS=128,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in the second kernel."""
    return _launch(a, b, bias, out, bias_relu=True)

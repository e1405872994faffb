# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | First: in `matmul_kernel` both loads mask with `ks < K`; it should be `ks < end`, since a share need not be a multiple of BLOCK_K: products at the borders of shares are counted twice where K is split (few tiles, K > 64) and the share is no multiple of 64, as K = 257, 129 or 96, in both functions. Second: in `add_parts_kernel`, `bias_ptr + row` should be `bias_ptr + col`: `matmul_bias_relu` is wrong wherever K is split, as at 128 x 128 x 128.
"""Matrix product; few tiles share K among several programs, and a second launch adds their sums."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 3, 8),
    _config(256, 128, 3, 8),
    _config(128, 128, 4, 8),
    _config(64, 128, 4, 4),
    _config(64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Part number program_id(1) of a tile: the sum over its share of K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    begin = part * share
    end = tl.minimum(begin + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_mask & (ks < K)[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_mask & (ks < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


@triton.jit
def add_parts_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, and the epilogue; an element is counted row by row."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < M * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts_ptr + part * M * N + offs, mask=mask, other=0.0)
    row = offs // N
    col = offs - row * N
    if BIAS_RELU:
        total += tl.load(bias_ptr + row, mask=mask, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    c_ptrs = c_ptr + row.to(tl.int64) * stride_cm + col.to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=mask)


def _parts(M, N, K):
    """Up to 8 programs for each tile, where the tiles alone do not fill the GPU."""
    if triton.cdiv(M, 64) * triton.cdiv(N, 64) >= 64:
        return 1
    return min(8, triton.cdiv(K, 64))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = _parts(M, N, K)
    share = triton.cdiv(K, parts)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        parts,
    )
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, share, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, share, *a.stride(), *b.stride(), *sums.stride(), BIAS_RELU=False
    )
    add_parts_kernel[(triton.cdiv(M * N, 512),)](
        sums, out, bias, M, N, *out.stride(), PARTS=parts, BIAS_RELU=bias_relu, BLOCK=512
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)

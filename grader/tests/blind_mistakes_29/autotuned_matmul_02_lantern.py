# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product; where the result has few tiles and K is long, K is cut into parts summed by a second kernel."""

import torch
import triton
import triton.language as tl

STEP = 64
WIDTH = 256


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    group_size = GROUP_M * wide
    first = (tile // group_size) * GROUP_M
    height = tl.minimum(high - first, GROUP_M)
    inside = tile % group_size
    return (first + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, span,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The sums over k in [part * span, part * span + span) of one tile; c may be the result or its parts."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    row_exists = (rows < M)[:, None]
    col_exists = (cols < N)[None, :]

    begin = part * span
    end = tl.minimum(begin + span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & (ks < end)[None, :], other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks < end)[:, None] & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    base = c_ptr + part.to(tl.int64) * stride_cs
    where = base + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def combine_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the parts of BLOCK elements of one row, always in the same order."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = (tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = cols < N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(parts_ptr + (row + part * M) * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _parts(M, N, K):
    """Into how many parts K is cut: one unless the result alone leaves most of a GPU without work."""
    if K < 1024 or triton.cdiv(M, 64) * triton.cdiv(N, 64) >= 64:
        return 1
    return min(8, K // 512)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = _parts(M, N, K)
    span = triton.cdiv(triton.cdiv(K, parts), STEP) * STEP
    if parts == 1:
        target, strides = out, (0, out.stride(0), out.stride(1))
    else:
        target = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
        strides = (M * N, N, 1)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    matmul_kernel[grid](
        a, b, target, bias, M, N, K, *a.stride(), *b.stride(), *strides, span,
        BIAS_RELU=bias_relu and parts == 1,
    )  # fmt: skip
    if parts > 1:
        combine_kernel[(M, triton.cdiv(N, WIDTH))](
            target, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, PARTS=parts, BLOCK=WIDTH
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel launched has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)

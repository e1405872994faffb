# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | share_kernel makes its accumulator in the dtype of a, `tl.zeros(..., dtype=a_ptr.dtype.element_ty)`, and gives it to tl.dot, whose result is fp32: for fp16 and bf16 the accumulator has the wrong type and tl.dot fails with an assertion, so both functions do not compile there; fp32 is right. It should be tl.float32.
"""K is dealt out to SHARES programs a tile; a second kernel loads all shares of a row at once and sums them."""

import torch
import triton
import triton.language as tl

SHARES = 4


def _tiles():
    table = {
        (128, 256): (64, 3, 8),
        (256, 128): (64, 3, 8),
        (128, 128): (64, 3, 8),
        (64, 128): (32, 4, 4),
        (64, 64): (32, 4, 4),
    }
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
        for (m, n), (k, stages, warps) in table.items()
    ]


def _within(configs, named_args, **kwargs):
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    low, high = sorted((named_args["M"], named_args["N"]))
    kept = [
        c
        for c in configs
        if min(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= low
        and max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= high
    ]
    return kept or configs[-1:]


@triton.autotune(configs=_tiles(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": _within})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, shares_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    DEALT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """shares[s] = the products of blocks s, s + DEALT, s + 2 DEALT, ... of K; fp32, (DEALT, M, N)."""
    pid = tl.program_id(0)
    s = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tl.cdiv(M, BLOCK_M), tiles_n, 8)
    row = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    col = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = row[:, None] < M
    col_mask = col[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=a_ptr.dtype.element_ty)
    for k in range(s * BLOCK_K, K, DEALT * BLOCK_K):
        lane = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_at = a_ptr + row[:, None] * stride_am + lane[None, :] * stride_ak
        b_at = b_ptr + lane[:, None] * stride_bk + col[None, :] * stride_bn
        a = tl.load(a_at, mask=row_mask & (lane[None, :] < K), other=0.0)
        b = tl.load(b_at, mask=col_mask & (lane[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    plane = shares_ptr + s.to(tl.int64) * M * N
    tl.store(plane + row[:, None] * N + col[None, :], acc, mask=row_mask & col_mask)


@triton.jit
def total_kernel(
    shares_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    DEALT: tl.constexpr, BIAS_RELU: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One piece of a row of c: DEALT x WIDTH numbers, summed over the shares."""
    pieces = tl.cdiv(N, WIDTH)
    row = (tl.program_id(0) // pieces).to(tl.int64)
    col = (tl.program_id(0) % pieces) * WIDTH + tl.arange(0, WIDTH).to(tl.int64)
    s = tl.arange(0, DEALT).to(tl.int64)
    at = shares_ptr + (s[:, None] * M + row) * N + col[None, :]
    y = tl.sum(tl.load(at, mask=col[None, :] < N, other=0.0), axis=0)
    if BIAS_RELU:
        y += tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        y = tl.maximum(y, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, y.to(c_ptr.dtype.element_ty), mask=col < N)


def _deal(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    dealt = SHARES if M * N <= 1024 * 1024 else 1
    shares = torch.empty((dealt, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), dealt)  # noqa: E731
    share_kernel[grid](a, b, shares, M, N, K, *a.stride(), *b.stride(), DEALT=dealt)
    total_kernel[(M * triton.cdiv(N, 512),)](
        shares, out, bias, M, N, *out.stride(), DEALT=dealt, BIAS_RELU=bias_relu, WIDTH=512
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _deal(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _deal(a, b, bias, out, bias_relu=True)

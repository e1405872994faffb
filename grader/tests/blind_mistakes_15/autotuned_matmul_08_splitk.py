# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In partial_kernel the loads are masked with K instead of the end of the program's own part (`last`), so the last step of a part also sums elements that the next part sums again; the masks should be `ks < last`. Wrong wherever the part, K / 3 rounded up, is no multiple of BLOCK_K.
"""Matrix product in two kernels: three programs share the K of a tile, and a second kernel adds what they found."""

import torch
import triton
import triton.language as tl

PARTS = 3


def _config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, part_length,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """sums[part] = the products of one part of K; sums is (PARTS, M, N), fp32 and contiguous."""
    tile = tl.program_id(axis=0)
    part = tl.program_id(axis=1)
    across = tl.cdiv(N, BLOCK_N)
    rows = (tile // across * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile % across * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    first = part * part_length
    last = tl.minimum(first + part_length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        inside = ks < K
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=inside[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    place = (part.to(tl.int64) * M + rows[:, None]) * N + cols[None, :]
    tl.store(sums_ptr + place, acc, mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.jit
def finish_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, or relu(that + bias)."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        row_of_part = rows + M * tl.full((ROWS,), part, dtype=tl.int64)
        total += tl.load(sums_ptr + row_of_part[:, None] * N + cols[None, :], mask=mask, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, total.to(c_ptr.dtype.element_ty), mask=mask)


def _both(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.empty((PARTS, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), PARTS)  # noqa: E731
    partial_kernel[grid](
        a, b, sums, M, N, K, triton.cdiv(K, PARTS), a.stride(0), a.stride(1), b.stride(0), b.stride(1)
    )  # fmt: skip
    finish_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
        sums, bias, out, M, N, out.stride(0), out.stride(1), PARTS=PARTS, BIAS_RELU=bias_relu, ROWS=32, COLS=64
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _both(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _both(a, b, bias, out, True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `finish_kernel`, `total = tl.sum(parts + bias[None, :], axis=0)` broadcasts the bias over the shares, so it is added SHARES = 2 times; it should be `tl.sum(parts, axis=0) + bias`. All cases of `matmul_bias_relu` are wrong; `matmul` is right.
"""Matrix product in two launches: shares of K tile by tile, then their sum with bias and ReLU."""

import torch
import triton
import triton.language as tl

SHARES = 2
FINISH_BLOCK = 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile % (GROUP_M * across)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SHARES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """parts[share] = the products of one share of K; parts is (SHARES, M, N), fp32, contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]

    # Whole blocks of K for each share; the last share may have fewer of them, or none.
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), SHARES) * BLOCK_K
    begin = share * length
    end = tl.minimum(begin + length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rows * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M) & (ks[None, :] < end),
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols * stride_bn,
            mask=(ks[:, None] < end) & (cols < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    at = share.to(tl.int64) * M * N + rows * N + cols
    tl.store(parts_ptr + at, acc, mask=(rows < M) & (cols < N))


@triton.jit
def finish_kernel(
    parts_ptr, c_ptr, bias_ptr, N, count, stride_cm, stride_cn,
    SHARES: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of all shares, with bias and ReLU where asked; a program has BLOCK elements of c in a row."""
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < count
    row = at // N
    col = at % N
    share = tl.arange(0, SHARES).to(tl.int64)
    parts = tl.load(parts_ptr + share[:, None] * count + at[None, :], mask=exists[None, :], other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=exists, other=0.0).to(tl.float32)
        total = tl.sum(parts + bias[None, :], axis=0)
        total = tl.maximum(total, 0.0)
    else:
        total = tl.sum(parts, axis=0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((SHARES, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), SHARES)  # noqa: E731
    share_kernel[tiles](
        a, b, parts, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SHARES=SHARES
    )
    finish_kernel[(triton.cdiv(M * N, FINISH_BLOCK),)](
        parts, out, bias, N, M * N, out.stride(0), out.stride(1),
        SHARES=SHARES, BIAS_RELU=bias_relu, BLOCK=FINISH_BLOCK,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

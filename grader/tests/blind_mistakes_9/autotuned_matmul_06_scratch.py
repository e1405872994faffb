# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The kernel stores to an fp32 matrix `wide`, and the host rounds it by `out.copy_(wide)`: copy_ is not among the names of LANGUAGE.md (POLICY), as only a kernel may compute; the kernel must convert and store to out by its strides. The numbers themselves are right.
"""Matrix product, autotuned: the sums stay in fp32 to the end and are rounded once."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
TILES = [(128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (64, 128, 64, 3, 4), (64, 64, 32, 4, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for bm, bn, bk, s, w in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group, within = tile // in_group, tile % in_group
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, wide_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    row_exists, col_exists = (rows < M)[:, None], (cols < N)[None, :]
    step = tl.full((), BLOCK_K, dtype=tl.int64)  # times a stride it may pass 2^31
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (ks < K - k)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < K - k)[:, None] & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(wide_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    wide = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, wide, bias, M, N, K, *a.stride(), *b.stride(), BIAS_RELU=bias_relu)
    out.copy_(wide)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)

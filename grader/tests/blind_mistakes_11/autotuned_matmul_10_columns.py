# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | two configs have BLOCK_N or BLOCK_M = 192 (to fill the registers), and tl.arange(0, 192) is no block: its length must be a power of two, so 128 or 256. Shows as a compile error in fp16 and bf16 as soon as both M and N are at least 192, where fitting keeps these configs; smaller results and fp32 are right.
"""Matrix product tile by tile, with a wide choice of tiles."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in [
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 192, 64, 4, 8),
        (192, 128, 64, 4, 8),
        (128, 128, 64, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (32, 64, 64, 4, 4),
    ]
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    row = first + within % height
    column = within // height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ka = tl.arange(0, BLOCK_K).to(tl.int64)[None, :]
    kb = tl.arange(0, BLOCK_K).to(tl.int64)[:, None]
    a_ptrs = a_ptr + rows * stride_am + ka * stride_ak
    b_ptrs = b_ptr + kb * stride_bk + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M) & (ka < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(kb < K - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)

    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows < M) & (cols < N),
    )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    result = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, result, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), result.stride(0), result.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)

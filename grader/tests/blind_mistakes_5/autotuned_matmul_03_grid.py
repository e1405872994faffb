# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | The launch passes `out.stride(1), out.stride(0)` for `stride_cm, stride_cn`: exchanged strides of the result, so it is stored transposed (out of bounds where M is not N). It must be stride(0), stride(1).
"""Matrix product on a two-dimensional grid."""

import torch
import triton
import triton.language as tl

CONFIGS = []
for bm, bn, bk, stages, warps in [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 32, 4, 8), (64, 64, 64, 3, 4)]:
    CONFIGS.append(triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps))


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, stride_am, stride_ak,
    b_ptr, stride_bk, stride_bn,
    c_ptr, stride_cm, stride_cn,
    bias_ptr,
    M, N, K,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (i, j) owns tile (i, j) of c."""
    # which tile am I?
    pid_m = tl.program_id(axis=0)
    pid_n = tl.program_id(axis=1)
    # rows and columns of this tile
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m = offs_m < M
    mask_n = offs_n < N
    # the first tiles
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    # accumulate in fp32
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    remaining = K
    while remaining > 0:
        mask_k = offs_k < remaining
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
        remaining -= BLOCK_K
    # epilogue
    if HAS_BIAS:
        bias = tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0)
        accumulator = accumulator + bias[None, :].to(tl.float32)
        accumulator = tl.maximum(accumulator, 0.0)
    # store
    c = accumulator.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, c, mask=mask_m[:, None] & mask_n[None, :])


def _launch(a, b, bias, out):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    matmul_kernel[grid](
        a, a.stride(0), a.stride(1),
        b, b.stride(0), b.stride(1),
        out, out.stride(1), out.stride(0),
        a if bias is None else bias,
        M, N, K,
        HAS_BIAS=bias is not None,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out)

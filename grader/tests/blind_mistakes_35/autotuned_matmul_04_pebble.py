# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In matmul_kernel below `if BIAS_RELU`, `bias[None, :]`: cols is already a row of shape (1, BLOCK_N), and so is the loaded bias, so bias[None, :] is (1, 1, BLOCK_N) and acc becomes (1, BLOCK_M, BLOCK_N); the kernel does not compile, and Triton complains about the rank at tl.store. Shows in every case of matmul_bias_relu (matmul is right); should be `acc + bias`.
"""Matrix product tile by tile, with numbers of rows as columns and numbers of columns as rows throughout."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group}, num_stages=stages, num_warps=warps
    )
    for bm, bn, bk, group, stages, warps in (
        (128, 256, 64, 8, 3, 8),
        (256, 128, 64, 4, 3, 8),
        (128, 128, 64, 8, 3, 4),
        (64, 128, 32, 8, 4, 4),
        (64, 64, 64, 8, 4, 4),
        (32, 32, 32, 8, 3, 2),
    )
]


def fitting(configs, named_args, **kwargs):
    """No tile wider than the result, and none wider than 64 for fp32."""
    size = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    offset = tile % (GROUP_M * tiles_n)
    rows_here = min(tiles_m - group * GROUP_M, GROUP_M)
    pid_m = group * GROUP_M + offset % rows_here
    pid_n = offset // rows_here
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    lanes = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + lanes[None, :] * stride_ak
    b_ptrs = b_ptr + lanes[:, None] * stride_bk + cols * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (lanes[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < left) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    # The pointer of the bias is not read: a stands in for it.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)

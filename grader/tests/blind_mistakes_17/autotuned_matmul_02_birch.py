# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the tile of b is loaded as (BLOCK_N, BLOCK_K) and then turned into (BLOCK_K, BLOCK_N) by tl.reshape, which keeps the order of the elements and scrambles the tile. It should be tl.trans(b_nk).
"""Matrix product with an autotuned tile, optionally with bias and ReLU."""

import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps, group=8):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * num_n
    first_m = (tile // in_group) * GROUP_M
    size_m = tl.minimum(num_m - first_m, GROUP_M)
    rest = tile % in_group
    pid_m = first_m + rest % size_m
    pid_n = rest // size_m
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    in_m = offs_m < M
    in_n = offs_n < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        offs_k = (k0 + tl.arange(0, BLOCK_K)).to(tl.int64)
        in_k = offs_k < K
        # both operands with k along the second axis, the layout of a weight stored as (N, K)
        a_mk = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=in_m[:, None] & in_k[None, :],
            other=0.0,
        )
        b_nk = tl.load(
            b_ptr + offs_n[:, None] * stride_bn + offs_k[None, :] * stride_bk,
            mask=in_n[:, None] & in_k[None, :],
            other=0.0,
        )
        b_kn = tl.reshape(b_nk, (BLOCK_K, BLOCK_N))
        acc = tl.dot(a_mk, b_kn, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + offs_n, mask=in_n, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)

    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, c, mask=in_m[:, None] & in_n[None, :]
    )


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, True)

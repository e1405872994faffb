# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | _candidates: the config `(128, 192, 64, 4, 8)` has a tile side that is no power of two, so `tl.arange(0, BLOCK_N)` and `tl.zeros` do not compile; it should be 128 or 256. Raises for 16-bit matmul and matmul_bias_relu wherever `fitting` keeps that config, i.e. M and N both at least 192 (also at 4096); smaller results and fp32 are right.
"""Autotuned matrix product: tiles in the order of tl.swizzle2d, bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

GROUP_M = 8


def _candidates():
    """Large tiles first, for large products; 64 x 64 at the end for small results and for fp32."""
    found = []
    for block_m, block_n, block_k, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        # 4 stages of 40 KB are 160 KB, and the sums take 96 registers a thread.
        (128, 192, 64, 4, 8),
        (128, 128, 64, 4, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 32, 4, 4),
    ):
        tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": GROUP_M}
        found.append(triton.Config(tile, num_stages=stages, num_warps=warps))
    return found


def fitting(configs, named_args, **kwargs):
    """Without the tiles that are wider than the result, or that fp32 would unroll too far."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept if len(kept) > 0 else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(
    configs=_candidates(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m + tl.arange(0, BLOCK_M)
    j = n + tl.arange(0, BLOCK_N)
    i_ok = i < M
    j_ok = j < N
    i = i.to(tl.int64)
    j = j.to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        k_ok = ks < K
        a = tl.load(
            a_ptr + i[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=i_ok[:, None] & k_ok[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + j[None, :] * stride_bn,
            mask=k_ok[:, None] & j_ok[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j_ok, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    tl.store(
        c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=i_ok[:, None] & j_ok[None, :],
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

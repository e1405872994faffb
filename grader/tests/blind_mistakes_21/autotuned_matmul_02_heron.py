# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the sums are those of the transposed tile, (BLOCK_N, BLOCK_M), and `tl.reshape(acc, (BLOCK_M, BLOCK_N))` before the store keeps the linear order instead of exchanging the axes, so values land at wrong places in every tile. It should be tl.trans(acc).
"""Matmul: each program computes its tile as (B^T A^T), which puts the columns of b on the first axis."""

import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 256, 32, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 32, 64, 3, 4),
    _config(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = []
    for c in configs:
        if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size):
            kept.append(c)
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    width = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // width
    top = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inside = tile - group * width
    return (top + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    im = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    jn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)

    # acc[j, i] = sum over k of b[k, j] * a[i, k]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        kk = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        bt = tl.load(
            b_ptr + jn[:, None] * stride_bn + kk[None, :] * stride_bk,
            mask=(jn[:, None] < N) & (kk[None, :] < K),
            other=0.0,
        )
        at = tl.load(
            a_ptr + kk[:, None] * stride_ak + im[None, :] * stride_am,
            mask=(kk[:, None] < K) & (im[None, :] < M),
            other=0.0,
        )
        acc = tl.dot(bt, at, acc, input_precision="ieee")

    if BIAS_RELU:
        # the columns of c are on the first axis here
        shift = tl.load(bias_ptr + jn, mask=jn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[:, None], 0.0)

    # back to the orientation of c
    result = tl.reshape(acc, (BLOCK_M, BLOCK_N)).to(c_ptr.dtype.element_ty)
    spots = c_ptr + im[:, None] * stride_cm + jn[None, :] * stride_cn
    tl.store(spots, result, mask=(im[:, None] < M) & (jn[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)

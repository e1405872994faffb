# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `bias_and_relu`, `on = acc > 0.0` decides before the bias is added; it should be `acc + bias > 0`: matmul_bias_relu is wrong in all cases, where the sum and the sum plus bias differ in sign (negative values remain, positive ones are lost). (2) In `matmul_kernel`, the tail step loads b at `b_cols + (whole + ks)[:, None] * stride_bk`, by the number of whole blocks; it should be `(done + ks)`: wrong rows of b in both functions where K > BLOCK_K and K is not a multiple of BLOCK_K (257, 129, 200, 521, 40 with BLOCK_K 32).
"""Matrix product: whole steps along K without a mask of K, then what is left of K in one masked step."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    height = min(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def bias_and_relu(acc, bias):
    """relu(acc + bias) for a row of bias values; units that are off give 0."""
    on = acc > 0.0
    return tl.where(on, acc + bias[None, :].to(tl.float32), 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_ok, col_ok = rows[:, None] < M, cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    whole = K // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a_ptrs = a_rows + ks[None, :] * stride_ak
    b_ptrs = b_cols + ks[:, None] * stride_bk
    for _ in range(0, whole):
        a = tl.load(a_ptrs, mask=row_ok, other=0.0)
        b = tl.load(b_ptrs, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    done = whole * BLOCK_K
    if done < K:
        a_left = ks[None, :] < K - done
        b_left = ks[:, None] < K - done
        a = tl.load(a_rows + (done + ks)[None, :] * stride_ak, mask=row_ok & a_left, other=0.0)
        b = tl.load(b_cols + (whole + ks)[:, None] * stride_bk, mask=col_ok & b_left, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = bias_and_relu(acc, tl.load(bias_ptr + cols, mask=cols < N, other=0.0))
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
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

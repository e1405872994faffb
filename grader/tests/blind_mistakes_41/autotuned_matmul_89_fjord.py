# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `finished` loads `bias_ptr + j` with j counted within the tile, where it should be `bias_ptr + n + j`: every tile takes the first values of the bias, wrong in `matmul_bias_relu` in all tile columns but the first (N larger than BLOCK_N), in all dtypes. (2) In `matmul_kernel`, `tl.dot(x, y, acc, max_num_imprecise_acc=0, out_dtype=tl.float32)` lacks `input_precision="ieee"` (`max_num_imprecise_acc` concerns fp8 only): fp32 inputs are multiplied as TF32, so fp32 is not precise enough in both functions.
"""Matrix product tile by tile, autotuned: each tile from the corners of its strips, in local numbers."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
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
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile % (GROUP_M * across)
    height = min(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def finished(acc, bias_ptr, j, width):
    """relu(acc + bias), in fp32; the tile has `width` columns inside c."""
    bias = tl.load(bias_ptr + j, mask=j < width, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    height, width = M - m, N - n
    m = m.to(tl.int64)
    n = n.to(tl.int64)
    # The corners of the strips of a and b and of the tile of c; from here on, numbers within the tile.
    a_ptr += m * stride_am
    b_ptr += n * stride_bn
    c_ptr += m * stride_cm + n * stride_cn
    i = tl.arange(0, BLOCK_M).to(tl.int64)
    j = tl.arange(0, BLOCK_N).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_tile = i[:, None] * stride_am + ks[None, :] * stride_ak
    b_tile = ks[:, None] * stride_bk + j[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        x = tl.load(a_ptr + a_tile, mask=(i < height)[:, None] & (ks < K - k)[None, :], other=0.0)
        y = tl.load(b_ptr + b_tile, mask=(ks < K - k)[:, None] & (j < width)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, max_num_imprecise_acc=0, out_dtype=tl.float32)
        a_ptr += BLOCK_K * stride_ak
        b_ptr += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = finished(acc, bias_ptr, j, width)
    c_tile = i[:, None] * stride_cm + j[None, :] * stride_cn
    inside = (i < height)[:, None] & (j < width)[None, :]
    tl.store(c_ptr + c_tile, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

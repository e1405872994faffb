# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | `matmul_kernel`. First: `tl.load(bias_ptr + in_n, ...)` reads the bias by the column inside of the tile; it should be `bias_ptr + n + in_n`; shows in matmul_bias_relu where N is larger than BLOCK_N. Second: `in_m[:, None] * stride_am` in `a_ptrs` is int32 (only the corner of the tile, `m.to(tl.int64)`, is int64); it should be `in_m.to(tl.int64)[:, None] * stride_am`; shows in both functions where rows of a within one tile lie beyond 2^31 elements.
"""Matrix product in two flavours, plain and with bias and ReLU, from one autotuned kernel."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 6}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a tile; GROUP_N columns of tiles are walked row by row."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    left = tile // (GROUP_N * tiles_m) * GROUP_N
    width = tl.minimum(tiles_n - left, GROUP_N)
    within = tile % (GROUP_N * tiles_m)
    return (within // width) * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    in_m = tl.arange(0, BLOCK_M)
    in_n = tl.arange(0, BLOCK_N)
    in_k = tl.arange(0, BLOCK_K)
    row_mask = m + in_m < M
    col_mask = n + in_n < N
    # The corner of the tile first, then the lanes inside of it.
    a_ptr += m.to(tl.int64) * stride_am
    b_ptr += n.to(tl.int64) * stride_bn
    c_ptr += m.to(tl.int64) * stride_cm + n.to(tl.int64) * stride_cn
    a_ptrs = a_ptr + in_m[:, None] * stride_am + in_k[None, :] * stride_ak
    b_ptrs = b_ptr + in_k[:, None] * stride_bk + in_n.to(tl.int64)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        k_mask = k + in_k < K
        a = tl.load(a_ptrs, mask=row_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & col_mask[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + in_n, mask=col_mask, other=0.0).to(tl.float32)
        acc += bias[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    c_ptrs = c_ptr + in_m.to(tl.int64)[:, None] * stride_cm + in_n.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask[:, None] & col_mask[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

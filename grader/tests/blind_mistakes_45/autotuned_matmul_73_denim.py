# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_n, tiles_m, GROUP_M)` in `place`: the sizes are exchanged, should be `tiles_m, tiles_n`; tiles of c are left out and others are computed twice or outside where the numbers of tiles along M and N differ (100 x 300, 33 x 65, 3 x 517). (2) `strides=(stride_c, 1)` for `c_block` in `matmul_kernel`, with only `out.stride(0)` passed by `_launch`: should be `(stride_cm, stride_cn)`; shows where `out` is transposed or every second column of a wider matrix (19 x 21 with such an `out`, which is a single tile and so does not show the first one).
"""Matrix product on block pointers, autotuned, with bias and ReLU in its epilogue."""

import torch
import triton
import triton.language as tl


def _tile(block_m, block_n, block_k):
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}


CONFIGS = [
    triton.Config(_tile(128, 256, 64), num_stages=3, num_warps=8),
    triton.Config(_tile(256, 128, 64), num_stages=3, num_warps=8),
    triton.Config(_tile(128, 128, 64), num_stages=3, num_warps=8),
    triton.Config(_tile(128, 128, 32), num_stages=4, num_warps=8),
    triton.Config(_tile(64, 128, 64), num_stages=3, num_warps=4),
    triton.Config(_tile(64, 64, 32), num_stages=3, num_warps=4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    row, col = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_n, tiles_m, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_c, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c; block pointers compute in 64 bits, and give 0 outside of a matrix."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    a_block = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(stride_am, stride_ak),
        offsets=(m, 0), block_shape=(BLOCK_M, BLOCK_K), order=(1, 0),
    )  # fmt: skip
    b_block = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(stride_bk, stride_bn),
        offsets=(0, n), block_shape=(BLOCK_K, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    c_block = tl.make_block_ptr(
        base=c_ptr, shape=(M, N), strides=(stride_c, 1),
        offsets=(m, n), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0),
    )  # fmt: skip

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    if BIAS_RELU:
        cols = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), out.stride(0), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

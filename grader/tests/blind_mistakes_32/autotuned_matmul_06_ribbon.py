# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch passes `BIAS_RELU=bias is not None`, but matmul passes `a` in the place of the bias, so the flag is always True: matmul returns relu(a @ b + the first N elements in memory of a) in every case (and reads outside of a where that has fewer than N). matmul_bias_relu is right. matmul should launch with BIAS_RELU=False, as with a flag of its own or a bias of None.
"""Matrix product with a fused epilogue; the tiles of a row of c lie next to each other in the launch."""

import itertools

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 1}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# Six tiles from 128 x 256 down to 64 x 64. The largest needs more warps for its sums.
CONFIGS = [
    _config(m, n, 64, 3, 8 if m * n > 128 * 128 else 4) for m, n in itertools.product((128, 64), (256, 128, 64))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c, which are counted row by row."""
    across = tl.cdiv(N, BLOCK_N)
    return (tile // across) * BLOCK_M, (tile % across) * BLOCK_N


@triton.jit
def relu(x):
    return tl.where(x > 0.0, x, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_k = ks[None, :]
        b_k = ks[:, None]
        a = tl.load(a_ptr + i * stride_am + a_k * stride_ak, mask=(i < M) & (a_k < K), other=0.0)
        b = tl.load(b_ptr + b_k * stride_bk + j * stride_bn, mask=(b_k < K) & (j < N), other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    if BIAS_RELU:
        sums = relu(sums + tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32))
    tl.store(
        c_ptr + i * stride_cm + j * stride_cn,
        sums.to(c_ptr.dtype.element_ty),
        mask=(i < M) & (j < N),
    )


def _launch(a, b, bias, out):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        *a.stride(), *b.stride(), *out.stride(),
        BIAS_RELU=bias is not None,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out)

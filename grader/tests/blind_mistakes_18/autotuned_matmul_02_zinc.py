# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In matmul_kernel, load of b: the mask inside(cols, ks, N, K - k) has shape (BLOCK_N, BLOCK_K) while the pointers are (BLOCK_K, BLOCK_N), so the shapes cannot be broadcast and the kernel does not compile. It should be inside(ks, cols, K - k, N).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


SHAPES = [(128, 256), (256, 128), (128, 128), (64, 128), (64, 64)]
CONFIGS = [_config(bm, bn, 32, 4, 8 if bm * bn > 8192 else 4) for bm, bn in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * num_n)
    pos = tile % (GROUP_M * num_n)
    size = tl.minimum(num_m - group * GROUP_M, GROUP_M)
    i = group * GROUP_M + pos % size
    j = pos // size
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def inside(i, j, height, width):
    """Which elements of a block with rows i and columns j exist."""
    return (i[:, None] < height) & (j[None, :] < width)


@triton.jit
def at(base, i, j, stride_i, stride_j):
    """Addresses of a block with rows i and columns j."""
    return base + i[:, None] * stride_i + j[None, :] * stride_j


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), one tile of c for each program."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    pa = at(a_ptr, rows, ks, stride_am, stride_ak)
    pb = at(b_ptr, ks, cols, stride_bk, stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    hop = tl.full([], BLOCK_K, tl.int64)
    for k in range(0, K, BLOCK_K):
        ta = tl.load(pa, mask=inside(rows, ks, M, K - k), other=0.0)
        tb = tl.load(pb, mask=inside(cols, ks, N, K - k), other=0.0)
        acc = tl.dot(ta, tb, acc, input_precision="ieee")
        pa += hop * stride_ak
        pb += hop * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)
    pc = at(c_ptr, rows, cols, stride_cm, stride_cn)
    tl.store(pc, acc.to(c_ptr.dtype.element_ty), mask=inside(rows, cols, M, N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

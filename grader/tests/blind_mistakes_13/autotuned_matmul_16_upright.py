# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | The kernel computes the transposed tile, c.T = b.T a.T, with an accumulator of (BLOCK_N, BLOCK_M), walks K from the end to the start, and drops the mask of K by a heuristic where K is a multiple of BLOCK_K.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = []
for sides in ((256, 128), (128, 256), (128, 128)):
    CONFIGS.append(_config(*sides, 64, 3, 8))
CONFIGS.append(_config(64, 128, 32, 4, 4))
CONFIGS.append(_config(64, 64, 32, 4, 4))


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
    # GROUP_M columns of tiles, walked row by row
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tiles_m
    first = tile // in_group * GROUP_M
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_M)
    within = tile % in_group
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE_STEPS": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    WHOLE_STEPS: tl.constexpr,
):  # fmt: skip
    """c.T = b.T @ a.T, or relu of that and the bias; program pid owns one BLOCK_N x BLOCK_M tile of c.T."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    across = m.to(tl.int64) + tl.arange(0, BLOCK_M)[None, :]
    down = n.to(tl.int64) + tl.arange(0, BLOCK_N)[:, None]
    there = (down < N) & (across < M)

    steps = tl.cdiv(K, BLOCK_K)
    upright = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in range(0, steps):
        # the step with the tail comes first
        ks = (steps - 1 - step) * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        left_ptrs = b_ptr + down * stride_bn + ks[None, :] * stride_bk
        right_ptrs = a_ptr + ks[:, None] * stride_ak + across * stride_am
        if WHOLE_STEPS:
            left = tl.load(left_ptrs, mask=down < N, other=0.0)
            right = tl.load(right_ptrs, mask=across < M, other=0.0)
        else:
            left = tl.load(left_ptrs, mask=(down < N) & (ks[None, :] < K), other=0.0)
            right = tl.load(right_ptrs, mask=(ks[:, None] < K) & (across < M), other=0.0)
        upright = tl.dot(left, right, upright, input_precision="ieee")

    if BIAS_RELU:
        upright += tl.load(bias_ptr + down, mask=down < N, other=0.0).to(tl.float32)
        upright = tl.maximum(upright, 0.0)
    tl.store(c_ptr + down * stride_cn + across * stride_cm, upright.to(c_ptr.dtype.element_ty), mask=there)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

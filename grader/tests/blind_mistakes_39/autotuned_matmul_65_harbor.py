# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | The decorators of matmul_kernel are in the wrong order: @triton.heuristics stands above @triton.autotune, so whole_steps runs before a config is chosen, and args["BLOCK_K"] raises KeyError: 'BLOCK_K' in every call of both functions. Should be @triton.autotune on top, and @triton.heuristics between it and @triton.jit.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 32, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def whole_steps(args):
    """Whether K is made of whole blocks, so that no load needs a mask along K."""
    return args["K"] % args["BLOCK_K"] == 0


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * num_n
    group_start = (tile // group_size) * GROUP_M
    rows_here = min(num_m - group_start, GROUP_M)
    pos = tile % group_size
    return (group_start + pos % rows_here) * BLOCK_M, (pos // rows_here) * BLOCK_N


@triton.heuristics({"EVEN_K": whole_steps})
@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, all of one dtype, any strides; bias is (N,) like
    them, contiguous, and read where BIAS_RELU.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m = offs_m[:, None] < M
    mask_n = offs_n[None, :] < N
    a_tile = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_tile = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_tile, mask=mask_m, other=0.0)
            b = tl.load(b_tile, mask=mask_n, other=0.0)
        else:
            left = K - step * BLOCK_K
            a = tl.load(a_tile, mask=mask_m & (offs_k[None, :] < left), other=0.0)
            b = tl.load(b_tile, mask=mask_n & (offs_k[:, None] < left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_tile = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(0), b.stride(1),
        out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
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

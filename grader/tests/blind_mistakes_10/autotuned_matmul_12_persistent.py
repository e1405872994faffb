# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `continue` in the loop over the tiles of a kernel: Triton does not compile break and continue in a kernel (unsupported AST node type: Continue); the tile must be under an `if`, or the last group must be shorter. The interpreter runs it, so it shows in codegen and on a GPU.
"""Persistent matrix product: a fixed number of programs, each walks over many tiles."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 4}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32 and for small results."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if c.kwargs["BLOCK_M"] <= size] or configs[-1:]


def programs_for(x):
    """One program for each SM."""
    if not x.is_cuda:
        return 16
    return torch.cuda.get_device_properties(x.device).multi_processor_count


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    # All groups are GROUP_M rows of tiles high; rows of tiles below the matrix are skipped.
    groups = tl.cdiv(tl.cdiv(M, BLOCK_M), GROUP_M)
    in_group = GROUP_M * tiles_n
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), groups * in_group, tl.num_programs(0)):
        within = tile % in_group
        m = (tile // in_group * GROUP_M + within % GROUP_M) * BLOCK_M
        n = within // GROUP_M * BLOCK_N
        if m >= M:
            continue
        rows = tl.cast(m + tl.arange(0, BLOCK_M), tl.int64)
        cols = tl.cast(n + tl.arange(0, BLOCK_N), tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] + k < K), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] + k < K) & (cols[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    most = programs_for(a)

    def grid(meta):
        return (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a, b, *, out=None):
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)

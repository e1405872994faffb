# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) triton.autotune of partial_kernel, which adds into the fp32 workspace by tl.atomic_add, lacks reset_to_zero=["sums_ptr"]: the first call with new sizes or a new dtype, where more than one config is tried (M and N at least 64), contains the sums of all trials; (2) finish_kernel stores at c_ptr + row * stride_cm + col without the column stride of out: wrong where out.stride(1) is not 1 (transposed, every second column: elements land in the wrong places, in each other's or in the gaps between the columns), in both functions. Should pass out.stride(1) and multiply col by it
"""Matrix product split along K: programs add their share to an fp32 workspace, a second kernel finishes it."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, split_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT_K": split_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 1, 3, 8),
    _config(128, 128, 64, 1, 3, 8),
    _config(128, 128, 64, 2, 3, 8),
    _config(64, 64, 64, 4, 3, 4),
    _config(64, 64, 32, 1, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Adds the blocks slice, slice + SPLIT_K, ... of K to the sums, a contiguous (M, N) matrix of fp32."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    slice_k = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = (rows < M)[:, None]
    col_mask = (cols < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(slice_k * BLOCK_K, K, SPLIT_K * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=row_mask & (ks < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks < K)[:, None] & col_mask,
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_mask & col_mask, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, total, N, stride_cm, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """From the fp32 sums to the result, with bias and ReLU where asked."""
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    row = at // N
    col = at % N
    value = tl.load(sums_ptr + at, mask=mask, other=0.0)
    if BIAS_RELU:
        value += tl.load(bias_ptr + col, mask=mask, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0)
    tl.store(c_ptr + row * stride_cm + col, value.to(c_ptr.dtype.element_ty), mask=mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT_K"]

    partial_kernel[grid](a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    finish_kernel[(triton.cdiv(M * N, 1024),)](
        sums, out, bias, M * N, N, out.stride(0), BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)

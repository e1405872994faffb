# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel fetches the tiles of one step ahead, but in the loop the next tiles replace the current ones before `tl.dot`, so the first block of K is never multiplied, and the last product is with zeros: the sum lacks columns 0 to BLOCK_K - 1 of a, and for K <= BLOCK_K it is 0. Shows in every case of both functions. The dot of the current tiles must come before the loads of the next ones.
"""Matrix product tile by tile; the loads of a step are issued one step ahead."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 32, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept if len(kept) > 0 else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    grid_m = tl.cdiv(M, BLOCK_M)
    grid_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * grid_n
    group_start = (tile // per_group) * GROUP_M
    group_height = min(grid_m - group_start, GROUP_M)
    i = tile % per_group
    return (group_start + i % group_height) * BLOCK_M, (i // group_height) * BLOCK_N


@triton.jit
def fetch(a_ptr, b_ptr, rows, cols, ks, M, N, K, stride_am, stride_ak, stride_bk, stride_bn):
    """The tiles of a and b that belong to these ks, 0 outside of the matrices."""
    a = tl.load(
        a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
        mask=(rows[:, None] < M) & (ks[None, :] < K),
        other=0.0,
    )
    b = tl.load(
        b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
        mask=(ks[:, None] < K) & (cols[None, :] < N),
        other=0.0,
    )
    return a, b


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
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a, b = fetch(a_ptr, b_ptr, rows, cols, ks, M, N, K, stride_am, stride_ak, stride_bk, stride_bn)
    for _ in range(0, K, BLOCK_K):
        ks += BLOCK_K
        a, b = fetch(a_ptr, b_ptr, rows, cols, ks, M, N, K, stride_am, stride_ak, stride_bk, stride_bn)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    where = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the sum is `acc += tl.dot(lhs, rhs, acc, ...)`: tl.dot with acc as third argument already returns acc + product, so each step doubles what was summed before (earlier blocks of K are weighted by powers of two). Wrong in both functions for every K > BLOCK_K = 32; K <= 32 is right. It should be acc = tl.dot(lhs, rhs, acc) or acc += tl.dot(lhs, rhs).
"""c = a @ b in tiles, and relu(a @ b + bias) with the same kernel."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps, group_m=8):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 4, 8),
    _config(256, 128, 4, 8, group_m=4),
    _config(128, 128, 4, 4),
    _config(64, 128, 4, 4),
    _config(64, 64, 4, 4),
    _config(32, 32, 3, 2),
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles that are larger than c, and all large ones for fp32."""
    kept = []
    for config in configs:
        side = max(config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"])
        if side > 64 and named_args["lhs_ptr"].dtype == torch.float32:
            continue
        if side <= min(named_args["M"], named_args["N"]):
            kept.append(config)
    return kept or [configs[-1]]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group_id = tile // (GROUP_M * num_n)
    first_m = group_id * GROUP_M
    size_m = min(num_m - first_m, GROUP_M)
    local = tile % (GROUP_M * num_n)
    pid_m = first_m + local % size_m
    pid_n = local // size_m
    return pid_m * BLOCK_M, pid_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    lhs_ptr, rhs_ptr, res_ptr, bias_ptr, M, N, K,
    lhs_m, lhs_k, rhs_k, rhs_n, res_m, res_n, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of the result for each program."""
    m0, n0 = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m0 + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n0 + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        k = (step * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        along = k[None, :]
        down = k[:, None]
        lhs = tl.load(lhs_ptr + i * lhs_m + along * lhs_k, mask=(i < M) & (along < K), other=0.0)
        rhs = tl.load(rhs_ptr + down * rhs_k + j * rhs_n, mask=(down < K) & (j < N), other=0.0)
        acc += tl.dot(lhs, rhs, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    tl.store(res_ptr + i * res_m + j * res_n, acc.to(res_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)

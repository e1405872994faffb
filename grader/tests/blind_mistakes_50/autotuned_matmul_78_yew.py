# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `matmul_kernel`, `rows = tl.arange(0, BLOCK_M)` and `cols = tl.arange(0, BLOCK_N)` before the loop are int32, but under `if step == 0` they become int64 (`m + tl.arange(0, BLOCK_M)` with m int64 from `place`): a variable changes its type in an `if` within the loop, which Triton does not compile, in all cases (the interpreter runs it). The first values must be `.to(tl.int64)`.
"""Persistent autotuned matrix product: one flat loop over the steps along K of all tiles of a program."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, as int64: they meet strides."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    m = (first + within % height) * BLOCK_M
    n = within // height * BLOCK_N
    return m.to(tl.int64), n.to(tl.int64)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    programs = tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    mine = (tiles - tl.program_id(0) + programs - 1) // programs

    ks = tl.arange(0, BLOCK_K)
    rows = tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    tile = tl.program_id(0) - programs
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for flat in range(0, mine * steps):
        step = flat % steps
        if step == 0:
            tile += programs
            m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
            rows = m + tl.arange(0, BLOCK_M)
            cols = n + tl.arange(0, BLOCK_N)

        kk = step * BLOCK_K + ks
        a_ptrs = a_ptr + rows[:, None] * stride_am + kk[None, :] * stride_ak
        b_ptrs = b_ptr + kk[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (kk[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(kk[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

        if step == steps - 1:
            total = acc
            if BIAS_RELU:
                bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
                total = tl.maximum(total + bias[None, :], 0.0)
            c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
            inside = (rows[:, None] < M) & (cols[None, :] < N)
            tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    most = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 16

    def grid(meta):
        return (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `_config(128, 192, 64, 4, 8)` in `CONFIGS`: block sizes must be powers of two; `tl.arange(0, BLOCK_N)` in `matmul_kernel` with 192 does not compile (ValueError, which the autotuner does not skip). Should be 128 or 256. Shows in both functions where this config is kept: 16-bit dtypes with M and N at least 192 (521 x 389, 1024 x 1024, 4096 x 4096); fp32 and smaller results are right.
"""Matrix product, autotuned; a weight stored as (N, K) is loaded along its rows and turned in the kernel."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Shared memory: stages * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 bytes. Registers: BLOCK_M * BLOCK_N / (32 * warps).
CONFIGS = [
    _config(128, 256, 64, 3, 8),  # 144 KB, 128 sums a thread
    _config(128, 192, 64, 4, 8),  # 160 KB, 96
    _config(256, 128, 64, 3, 8),  # 144 KB, 128
    _config(128, 128, 64, 4, 8),  # 128 KB, 64
    _config(64, 128, 64, 4, 4),  # 96 KB, 64
    _config(64, 64, 32, 3, 4),  # 24 KB, 32
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
    row, col = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, TURN_B: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    rows_exist = rows < M
    cols_exist = cols < N
    rows = rows.to(tl.int64)
    cols_far = cols.to(tl.int64)

    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    if TURN_B:
        b_ptrs = b_ptr + cols_far[:, None] * stride_bn + ks[None, :] * stride_bk
    else:
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols_far[None, :] * stride_bn

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks_exist = ks < K - k
        a = tl.load(a_ptrs, mask=rows_exist[:, None] & ks_exist[None, :], other=0.0)
        if TURN_B:
            b = tl.trans(tl.load(b_ptrs, mask=cols_exist[:, None] & ks_exist[None, :], other=0.0))
        else:
            b = tl.load(b_ptrs, mask=ks_exist[:, None] & cols_exist[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols_exist, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols_far[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=rows_exist[:, None] & cols_exist[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, TURN_B=b.stride(0) == 1,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

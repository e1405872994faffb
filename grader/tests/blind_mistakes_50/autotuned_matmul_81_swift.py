# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Persistent programs (one for each multiprocessor) that walk strips of tile columns up and down in turn; the accumulator of the fused function starts from the bias, and only the ReLU comes after the loop.
"""Matrix product by as many programs as there are multiprocessors; the sums of the fused one start from the bias."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"TM": block_m, "TN": block_n, "TK": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["TM"], c.kwargs["TN"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, TM: tl.constexpr, TN: tl.constexpr, STRIP: tl.constexpr):
    """First row and first column of a tile: strips of STRIP columns of tiles, each walked row by row, up and down."""
    tiles_m = tl.cdiv(M, TM)
    tiles_n = tl.cdiv(N, TN)
    strip = tile // (STRIP * tiles_m)
    within = tile % (STRIP * tiles_m)
    width = tl.minimum(tiles_n - strip * STRIP, STRIP)
    i = within // width
    j = strip * STRIP + within % width
    # Every second strip goes up, so that it begins with the rows of a that were read last.
    up = strip % 2
    i += up * (tiles_m - 1 - 2 * i)
    return i * TM, j * TN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FUSED: tl.constexpr, STRIP: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(bias + a @ b), tile after tile."""
    tiles = tl.cdiv(M, TM) * tl.cdiv(N, TN)
    k_lane = tl.arange(0, TK)
    tl.assume(K > 0)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = place(tile, M, N, TM, TN, STRIP)
        row = m + tl.arange(0, TM)
        col = n + tl.arange(0, TN)
        acc = tl.zeros((TM, TN), dtype=tl.float32)
        if FUSED:
            acc += tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)[None, :]
        a_at = a_ptr + row.to(tl.int64)[:, None] * stride_am + k_lane[None, :] * stride_ak
        b_at = b_ptr + k_lane[:, None] * stride_bk + col.to(tl.int64)[None, :] * stride_bn
        for k in range(0, K, TK):
            a = tl.load(a_at, mask=(row[:, None] < M) & (k_lane[None, :] < K - k), other=0.0)
            b = tl.load(b_at, mask=(k_lane[:, None] < K - k) & (col[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc=acc, input_precision="ieee", out_dtype=tl.float32)
            a_at += TK * stride_ak
            b_at += TK * stride_bk
        if FUSED:
            acc = tl.maximum(acc, 0.0)
        c_at = c_ptr + row.to(tl.int64)[:, None] * stride_cm + col.to(tl.int64)[None, :] * stride_cn
        tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(row[:, None] < M) & (col[None, :] < N))


def _programs(device):
    """One for each multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


def _launch(a, b, bias, out, fused):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty((M, N)) if out is None else out
    most = _programs(a.device)
    grid = lambda meta: (min(most, triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"])),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        FUSED=fused, STRIP=8,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, fused=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Persistent matrix product: whole blocks of K without a mask along K, then what is left of it."""

import torch
import triton
import triton.language as tl

# A bias of None means neither bias nor ReLU: the kernel is then compiled without them.


def _configs():
    found = []
    for (block_m, block_n), block_k, stages, warps in (
        ((128, 256), 64, 3, 8),
        ((128, 128), 64, 3, 8),
        ((128, 64), 64, 3, 4),
        ((64, 64), 64, 3, 4),
        ((32, 64), 32, 3, 4),
        ((32, 32), 32, 3, 4),
    ):
        tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "BAND": 4}
        found.append(triton.Config(tile, num_stages=stages, num_warps=warps))
    return found


def fitting(configs, named_args, **kwargs):
    """Tiles within the result; for fp32, done without tensor cores, none above 64."""
    high, wide = named_args["M"], named_args["N"]
    if named_args["a_ptr"].dtype == torch.float32:
        high, wide = min(high, 64), min(wide, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= high and c.kwargs["BLOCK_N"] <= wide]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BAND: tl.constexpr):
    """First row and first column of a tile: bands of BAND columns of tiles, walked row by row."""
    down = tl.cdiv(M, BLOCK_M)
    in_band = BAND * down
    first = tile // in_band * BAND
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, BAND)
    within = tile % in_band
    return within // width * BLOCK_M, (first + within % width) * BLOCK_N


@triton.autotune(configs=_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    ks = tl.arange(0, BLOCK_K)
    whole = K // BLOCK_K * BLOCK_K
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, BAND)
        rows = m + tl.arange(0, BLOCK_M)
        cols = n + tl.arange(0, BLOCK_N)
        row_ok = (rows < M)[:, None]
        col_ok = (cols < N)[None, :]
        a_at = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for _ in range(0, whole, BLOCK_K):
            a = tl.load(a_at, mask=row_ok, other=0.0)
            b = tl.load(b_at, mask=col_ok, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_at += BLOCK_K * stride_ak
            b_at += BLOCK_K * stride_bk
        if whole < K:
            tail = whole + ks < K
            a = tl.load(a_at, mask=row_ok & tail[None, :], other=0.0)
            b = tl.load(b_at, mask=tail[:, None] & col_ok, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")

        if bias_ptr is not None:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)

        c_at = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
        tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _resident(x):
    """Programs that run at a time, one on each multiprocessor; without a GPU any number does."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 12


def _product(a, b, bias, out):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    resident = _resident(a)
    grid = lambda meta: (  # noqa: E731
        min(resident, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    persistent_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides; fp32 sums, rounded once."""
    return _product(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in the same kernel."""
    return _product(a, b, bias, out)

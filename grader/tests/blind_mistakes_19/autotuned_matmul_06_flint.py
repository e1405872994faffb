# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The autotune decorator of partial_sums lacks reset_to_zero=["work_ptr"]: the kernel adds to the workspace by tl.atomic_add, so the trials of the autotuner add up in it, and the first call of each new size is wrong on a GPU.
"""Split-K product: partial sums by atomics in fp32, then one kernel for the epilogue."""

import torch
import triton
import triton.language as tl

PRODUCT = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "PARTS": parts}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, parts, stages, warps in (
        (128, 256, 64, 1, 3, 8),
        (128, 128, 64, 1, 4, 8),
        (128, 128, 64, 2, 3, 8),
        (64, 128, 64, 4, 3, 4),
        (64, 64, 64, 3, 3, 4),
        (64, 64, 32, 1, 3, 4),
    )
]
ROWS = [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((256, 4), (512, 4), (1024, 4))]


def affordable(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if c.kwargs["BM"] <= widest and c.kwargs["BN"] <= widest] or configs[-2:]


@triton.autotune(configs=PRODUCT, key=["M", "N", "K"], prune_configs_by={"early_config_prune": affordable})
@triton.jit
def partial_sums(
    a_ptr, b_ptr, work_ptr, M, N, K, a_m, a_k, b_k, b_n,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Adds the products of every PARTS-th block of K to the tile of the workspace."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    wide = tl.cdiv(N, BN)
    rows = (tile // wide).to(tl.int64) * BM + tl.arange(0, BM)
    cols = (tile % wide).to(tl.int64) * BN + tl.arange(0, BN)
    row_ok, col_ok = rows < M, cols < N
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(part * BK, K, BK * PARTS):
        ks = start + tl.arange(0, BK).to(tl.int64)
        a = tl.load(a_ptr + rows[:, None] * a_m + ks[None, :] * a_k, mask=row_ok[:, None] & (ks < K)[None, :], other=0.0)
        b = tl.load(b_ptr + ks[:, None] * b_k + cols[None, :] * b_n, mask=(ks < K)[:, None] & col_ok[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    tl.atomic_add(
        work_ptr + rows[:, None] * N + cols[None, :], sums, mask=row_ok[:, None] & col_ok[None, :], sem="relaxed"
    )


@triton.autotune(configs=ROWS, key=["N"])
@triton.jit
def finish(work_ptr, bias_ptr, out_ptr, N, out_m, out_n, EPILOGUE: tl.constexpr, BLOCK: tl.constexpr):
    """out = the workspace, or relu of it plus bias, rounded once."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = cols < N
    value = tl.load(work_ptr + row * N + cols, mask=ok, other=0.0)
    if EPILOGUE:
        value = tl.maximum(value + tl.load(bias_ptr + cols, mask=ok, other=0.0).to(tl.float32), 0.0)
    tl.store(out_ptr + row * out_m + cols * out_n, value.to(out_ptr.dtype.element_ty), mask=ok)


def _both(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    work = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    partial_sums[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), meta["PARTS"])](
        a, b, work, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1)
    )
    finish[lambda meta: (M, triton.cdiv(N, meta["BLOCK"]))](
        work, bias, out, N, out.stride(0), out.stride(1), EPILOGUE=epilogue
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _both(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _both(a, b, bias, out, True)

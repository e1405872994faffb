# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `CANDIDATES`, `_candidate(128, 192, 64, 4, 8)`: 192 is no power of two, and `tl.arange(0, TILE_N)` and `tl.zeros` do not compile for it; it should be 128 or 256 (or the line be left out). A compile error, in both functions, where `worth_a_try` keeps the config: bf16 or fp16 with M and N of at least 192; smaller results and fp32 are right.
"""Autotuned matrix product; addresses along K are computed anew in each step."""

import torch
import triton
import triton.language as tl


def _candidate(rows, columns, depth, stages, warps):
    return triton.Config(
        {"TILE_M": rows, "TILE_N": columns, "TILE_K": depth, "GROUP": 8}, num_stages=stages, num_warps=warps
    )


# Shared memory at 2 bytes a number: 144, 160, 144, 128, 96 and 32 KB; sums a thread: 128, 96, 128, 64, 64 and 32.
CANDIDATES = [
    _candidate(128, 256, 64, 3, 8),
    _candidate(128, 192, 64, 4, 8),
    _candidate(256, 128, 64, 3, 8),
    _candidate(128, 128, 64, 4, 8),
    _candidate(64, 128, 64, 4, 4),
    _candidate(64, 64, 32, 4, 4),
]


def worth_a_try(candidates, named_args, **kwargs):
    """No tile beyond the result, and none beyond 64 for fp32, which is computed without tensor cores."""
    bound = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        bound = min(bound, 64)
    good = [c for c in candidates if max(c.kwargs["TILE_M"], c.kwargs["TILE_N"]) <= bound]
    return good or candidates[-1:]


@triton.jit
def origin(pid, M, N, TILE_M: tl.constexpr, TILE_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile; GROUP rows of tiles are walked column by column."""
    tiles_m = tl.cdiv(M, TILE_M)
    tiles_n = tl.cdiv(N, TILE_N)
    top = pid // (GROUP * tiles_n) * GROUP
    rows_here = tl.minimum(tiles_m - top, GROUP)
    inner = pid % (GROUP * tiles_n)
    return (top + inner % rows_here) * TILE_M, (inner // rows_here) * TILE_N


@triton.autotune(
    configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_a_try}
)
@triton.jit
def fused_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, EPILOGUE: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    m, n = origin(tl.program_id(0), M, N, TILE_M, TILE_N, GROUP)
    i = (m + tl.arange(0, TILE_M)).to(tl.int64)
    j = (n + tl.arange(0, TILE_N)).to(tl.int64)
    i_ok = (i < M)[:, None]
    j_ok = (j < N)[None, :]
    a_rows = a_ptr + i[:, None] * sam
    b_cols = b_ptr + j[None, :] * sbn
    tl.assume(K > 0)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for k in range(0, K, TILE_K):
        at = k + tl.arange(0, TILE_K)
        a = tl.load(a_rows + at[None, :] * sak, mask=i_ok & (at < K)[None, :], other=0.0)
        b = tl.load(b_cols + at[:, None] * sbk, mask=j_ok & (at < K)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    if EPILOGUE:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    tl.store(
        c_ptr + i[:, None] * scm + j[None, :] * scn, total.to(c_ptr.dtype.element_ty), mask=i_ok & j_ok
    )


def _call(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["TILE_M"]) * triton.cdiv(N, meta["TILE_N"]),)  # noqa: E731
    fused_kernel[grid](
        a, b, c, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        EPILOGUE=epilogue,
    )  # fmt: skip
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, one dtype, any strides."""
    return _call(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _call(a, b, bias, out, True)

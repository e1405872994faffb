# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | the two kernels disagree on the layout of the workspace, which is (M, N, SPLIT): `partial_sums` stores part s of element e at `e * SPLIT + s`, but `collect` loads it at `e + s * M * N` (`at[:, None] + parts[None, :] * M * N`): every element is a sum of parts of other elements; wrong in every case of both functions but M = N = 1; `collect` should load `work_ptr + at[:, None] * SPLIT + parts[None, :]`
"""Split K: four programs share a tile and leave their sums in a workspace; a second kernel collects them."""

import torch
import triton
import triton.language as tl

SPLIT = 4
COLLECTED = 256


def _config(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 16, 3, 2),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size] or configs[-1:]


@triton.jit
def indices(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The rows and the columns of a tile, in int64."""
    row_tiles = tl.cdiv(M, BM)
    column_tiles = tl.cdiv(N, BN)
    group = tile // (GROUP * column_tiles)
    place = tile - group * GROUP * column_tiles
    height = min(row_tiles - group * GROUP, GROUP)
    rows = (group * GROUP + place % height) * BM + tl.arange(0, BM)
    columns = (place // height) * BN + tl.arange(0, BN)
    return rows.to(tl.int64), columns.to(tl.int64)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_sums(
    a_ptr, b_ptr, work_ptr, M, N, K, a_row, a_col, b_row, b_col,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Part s has the blocks s, s + SPLIT, s + 2 SPLIT, ... of K."""
    pid = tl.program_id(0)
    part = pid % SPLIT
    rows, columns = indices(pid // SPLIT, M, N, BM, BN, 8)
    in_rows = rows[:, None] < M
    in_columns = columns[None, :] < N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(part * BK, K, SPLIT * BK):
        ks = (k + tl.arange(0, BK)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * a_row + ks[None, :] * a_col, mask=in_rows & (ks[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + ks[:, None] * b_row + columns[None, :] * b_col, mask=in_columns & (ks[:, None] < K), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    element = rows[:, None] * N + columns[None, :]
    tl.store(work_ptr + element * SPLIT + part, acc, mask=in_rows & in_columns)


@triton.jit
def collect(
    work_ptr, c_ptr, bias_ptr, M, N, c_row, c_col,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the parts of BLOCK elements, and stores them by the strides of c."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, SPLIT).to(tl.int64)
    row, column = at // N, at % N
    exists = row < M
    every = tl.load(work_ptr + at[:, None] + parts[None, :] * M * N, mask=exists[:, None], other=0.0)
    total = tl.sum(every, axis=1)
    if BIAS_RELU:
        total += tl.load(bias_ptr + column, mask=exists, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * c_row + column * c_col, total.to(c_ptr.dtype.element_ty), mask=exists)


def _split_product(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    work = torch.empty((M, N, SPLIT), device=a.device, dtype=torch.float32)
    grid = lambda meta: (SPLIT * triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    partial_sums[grid](a, b, work, M, N, K, *a.stride(), *b.stride(), SPLIT=SPLIT)
    collect[(triton.cdiv(M * N, COLLECTED),)](
        work, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, SPLIT=SPLIT, BLOCK=COLLECTED
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _split_product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _split_product(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In add_parts_kernel `total` starts at `tl.zeros`, and the loop moves `at` on before each load, so part 0 is never added: every `parts`-th block of K, from the first on, is missing (everything, where K fits in one block). It should start with `total = tl.load(at, mask=inside, other=0.0)`.
"""Matmul with K dealt out to several programs; their partial results are added in a second kernel.

Few tiles leave most of a large GPU idle. So several programs share one tile of c: part p takes the blocks
p, p + parts, p + 2 * parts, ... along K and writes its fp32 sums to a matrix of its own. No atomics are needed,
and the order of the additions is always the same.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in [
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 3, 4),
        (64, 64, 32, 3, 4),
    ]
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32, which has no tensor cores."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * wide)
    rest = tile % (GROUP_M * wide)
    top = group * GROUP_M
    tall = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    return (top + rest % tall) * BLOCK_M, (rest // tall) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def part_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, slab, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The sums of one part of K for one tile; each part has a contiguous (M, N) matrix of `slab` elements."""
    part = tl.program_id(axis=1)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lane = tl.arange(0, BLOCK_K).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(part * BLOCK_K, K, PARTS * BLOCK_K):
        ks = k + lane
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    at = part_ptr + part.to(tl.int64) * slab + rows[:, None] * N + cols[None, :]
    tl.store(at, acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_parts_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, slab, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, then bias and ReLU, all in fp32, and one rounding at the end."""
    wide = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % wide * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)

    at = part_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(PARTS - 1):
        at += slab
        total += tl.load(at, mask=inside, other=0.0)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    # A large result has tiles enough, and its parts cost memory.
    parts = 4 if M * N <= 1024 * 1024 else 2
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    part_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)](
        a, b, sums, M, N, K, M * N, a.stride(0), a.stride(1), b.stride(0), b.stride(1), PARTS=parts
    )
    add_parts_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 128),)](
        sums, out, bias, M, N, M * N, out.stride(0), out.stride(1),
        PARTS=parts, BIAS_RELU=bias_relu, ROWS=32, COLS=128,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

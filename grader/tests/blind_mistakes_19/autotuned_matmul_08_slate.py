# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right: split K in fp32 workspace with atomics, zeroed at each call and by reset_to_zero for the trials; contiguous pieces of K whose length is rounded up to whole blocks; odd tile sizes.
"""Products of long rows have few tiles: here K is cut into SPLIT pieces, each added to an fp32 workspace.

A second kernel reads the workspace, applies bias and ReLU where they are asked for, and rounds once.
"""

import torch
import triton
import triton.language as tl


def _candidate(block_m, block_n, block_k, split, group, stages, warps):
    values = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT": split, "GROUP": group}
    return triton.Config(values, num_stages=stages, num_warps=warps)


SPLIT_CONFIGS = [
    _candidate(128, 256, 64, 1, 8, 3, 8),
    _candidate(256, 64, 32, 2, 3, 4, 8),
    _candidate(64, 256, 64, 3, 5, 3, 8),
    _candidate(128, 32, 128, 5, 1, 2, 4),
    _candidate(32, 64, 128, 7, 2, 2, 4),
    _candidate(16, 128, 32, 4, 16, 3, 4),
    _candidate(64, 64, 16, 1, 8, 3, 4),
]
FINISH_CONFIGS = [
    triton.Config({"ROWS": 1, "COLS": 1024}, num_warps=4),
    triton.Config({"ROWS": 16, "COLS": 64}, num_warps=4),
    triton.Config({"ROWS": 64, "COLS": 16}, num_warps=4),
    triton.Config({"ROWS": 8, "COLS": 128}, num_warps=2),
]


def worthwhile(configs, named_args, **kwargs):
    """No tile far larger than the result, no more pieces than there are blocks of K, and small tiles for fp32."""
    M, N, K = named_args["M"], named_args["N"], named_args["K"]
    most = 64 * 64 if named_args["a_ptr"].dtype == torch.float32 else 128 * 256
    kept = []
    for config in configs:
        tile = config.kwargs
        fits = tile["BLOCK_M"] < 2 * M and tile["BLOCK_N"] < 2 * N and tile["BLOCK_M"] * tile["BLOCK_N"] <= most
        if fits and tile["SPLIT"] <= triton.cdiv(K, tile["BLOCK_K"]):
            kept.append(config)
    return kept or configs[-1:]


@triton.autotune(
    configs=SPLIT_CONFIGS,
    key=["M", "N", "K"],
    reset_to_zero=["sums_ptr"],
    prune_configs_by={"early_config_prune": worthwhile},
)
@triton.heuristics(
    {"PIECE": lambda args: triton.cdiv(triton.cdiv(args["K"], args["SPLIT"]), args["BLOCK_K"]) * args["BLOCK_K"]}
)
@triton.jit
def split_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, GROUP: tl.constexpr,
    PIECE: tl.constexpr,
):  # fmt: skip
    """sums += a[:, piece] @ b[piece, :] for one tile and one piece of K; pieces are whole blocks."""
    pid = tl.program_id(0)
    piece = pid % SPLIT
    tile = pid // SPLIT
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - band * GROUP, GROUP)
    inside = tile % (GROUP * tiles_n)
    rows = (band * GROUP + inside % height).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (inside // height).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)

    begin = piece * PIECE
    end = tl.minimum(begin + PIECE, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (rows < M)[:, None] & (ks < end)[None, :]
        b_mask = (ks < end)[:, None] & (cols < N)[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_mask = (rows < M)[:, None] & (cols < N)[None, :]
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask, sem="relaxed")


@triton.autotune(configs=FINISH_CONFIGS, key=["M", "N", "stride_n"])
@triton.jit
def finish_kernel(
    sums_ptr, bias_ptr, out_ptr, M, N, stride_m, stride_n,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out = sums, or relu(sums + bias), in the dtype of out."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across).to(tl.int64) * COLS + tl.arange(0, COLS)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    value = tl.load(sums_ptr + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        value = tl.maximum(value + bias[None, :], 0.0)
    tl.store(out_ptr + rows[:, None] * stride_m + cols[None, :] * stride_n, value.to(out_ptr.dtype.element_ty), mask=mask)


def _compute(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty((M, N)) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)

    def programs(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]) * meta["SPLIT"],)

    def strips(meta):
        return (triton.cdiv(M, meta["ROWS"]) * triton.cdiv(N, meta["COLS"]),)

    split_kernel[programs](a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    finish_kernel[strips](sums, bias, out, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _compute(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), summed in fp32 and rounded once."""
    return _compute(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | Persistent kernel with one flat loop over (tile, step of K): in matmul_kernel acc is not set back to zeros after `finish` has stored a tile. The second and later tiles of a program contain the sums of the tiles before. Shows only where the result has more tiles than there are programs (one for each SM, 16 on a CPU); it should be `acc = tl.zeros(...)` after the store, under the same `if`.
"""A persistent matrix product: a few programs walk over all tiles in a single loop."""

import torch
import triton
import triton.language as tl

SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 3, 4),
    (32, 32, 32, 3, 4),
)
CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; fp32 runs without tensor cores and gets small ones."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    per_group = tl.cdiv(N, BLOCK_N) * GROUP_M
    group = tile // per_group
    top = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inside = tile - group * per_group
    return (top + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.jit
def finish(
    acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr
):
    """Epilogue and store of one tile."""
    exists = (rows < M)[:, None] & (cols < N)[None, :]
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program p owns the tiles p, p + programs, p + 2 programs, ...; tiles and steps along K are one loop."""
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    mine = (tiles - pid + programs - 1) // programs
    ks = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for i in range(0, mine * steps):
        tile = pid + i // steps * programs
        k = i % steps * BLOCK_K
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        at = k + ks
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + at[None, :] * stride_ak,
            mask=(rows < M)[:, None] & (at < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + at[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(at < K)[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
        if k + BLOCK_K >= K:
            finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _programs(device):
    """One program for each multiprocessor; a machine without a GPU gets a handful."""
    if device.type != "cuda":
        return 16
    return torch.cuda.get_device_properties(device).multi_processor_count


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    most = _programs(a.device)

    def grid(meta):
        return (min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums; the result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in the same persistent kernel."""
    return _launch(a, b, bias, out, bias_relu=True)

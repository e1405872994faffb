# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | persistent_kernel stores the tile in two halves, but tl.split(tl.reshape(acc, (BM, HALF, 2))) gives the even and the odd columns, which are stored as the left and the right half: the columns of each tile are permuted, in both functions, in every case but N = 1. It should be tl.split(tl.permute(tl.reshape(acc, (BM, 2, HALF)), (0, 2, 1))).
"""A persistent matrix product: about one program per multiprocessor, each walks over many tiles."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 32, "BN": 32, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = min(named_args["M"], named_args["N"])
    if named_args["a"].dtype == torch.float32:
        widest = min(widest, 64)
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= widest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    per_group = GROUP * tl.cdiv(N, BN)
    first = (tile // per_group) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    inside = tile % per_group
    return (first + inside % height) * BM, (inside // height) * BN


@triton.jit
def put(part, m, n, c, bias, M, N, cm, cn, FUSED: tl.constexpr):
    """Finish and store the sums of rows m and columns n."""
    if FUSED:
        part += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        part = tl.maximum(part, 0.0)
    spot = c + m.to(tl.int64)[:, None] * cm + n.to(tl.int64)[None, :] * cn
    tl.store(spot, part.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a, b, c, bias, M, N, K, am, ak, bk, bn, cm, cn, FUSED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = BN // 2
    ks = tl.arange(0, BK)
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        top, left = place(tile, M, N, BM, BN, GROUP)
        m = top + tl.arange(0, BM)
        n = left + tl.arange(0, BN)
        a_rows = a + m.to(tl.int64)[:, None] * am
        b_cols = b + n.to(tl.int64)[None, :] * bn
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            k_now = k + ks
            x = tl.load(a_rows + k_now[None, :] * ak, mask=(m < M)[:, None] & (k_now < K)[None, :], other=0.0)
            y = tl.load(b_cols + k_now[:, None] * bk, mask=(k_now < K)[:, None] & (n < N)[None, :], other=0.0)
            acc = tl.dot(x, y, acc, input_precision="ieee")
        # Half a tile at a time: the conversion and the addresses then need half of the registers.
        near, far = tl.split(tl.reshape(acc, (BM, HALF, 2)))
        half = left + tl.arange(0, HALF)
        put(near, m, half, c, bias, M, N, cm, cn, FUSED)
        put(far, m, half + HALF, c, bias, M, N, cm, cn, FUSED)


def _programs(x):
    """How many programs run at a time; any number is right."""
    if x.is_cuda:
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return 16


def _run(a, b, bias, out, fused):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    programs = _programs(a)

    def grid(meta):
        return (min(programs, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)

    persistent_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), FUSED=fused
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, fused=True)

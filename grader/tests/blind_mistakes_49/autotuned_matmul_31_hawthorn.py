# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `block_kernel` the line `acc += tl.dot(left, right, acc, input_precision="ieee")` adds the accumulator twice; it should be `acc = tl.dot(left, right, acc, ...)` (or `acc += tl.dot(left, right, ...)`). Each step doubles the earlier sum, so every K larger than one block (32 or 64) is wrong, in both functions; right only where K is a single step.
"""Matrix product on block pointers: the bounds of a, b and c are checked where a tile is loaded or stored."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 128, "BK": 32, "GROUP": 4}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 4}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Only tiles that the result can fill; fp32 runs without tensor cores and takes the small ones."""
    widest = 64 if named_args["a"].dtype == torch.float32 else 128
    size = min(widest, min(named_args["M"], named_args["N"]))
    chosen = [c for c in configs if c.kwargs["BM"] <= size and c.kwargs["BN"] <= size]
    return chosen if chosen else [configs[-1]]


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Tile row and tile column of a program."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    band = pid // (GROUP * tiles_n)
    inside = pid - band * GROUP * tiles_n
    height = tl.minimum(GROUP, tiles_m - band * GROUP)
    return band * GROUP + inside % height, inside // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def block_kernel(
    a, b, c, bias, M, N, K, am, ak, bk, bn, cm, cn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, col = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    a_block = tl.make_block_ptr(
        base=a, shape=(M, K), strides=(am, ak), offsets=(row * BM, 0), block_shape=(BM, BK), order=(1, 0)
    )
    b_block = tl.make_block_ptr(
        base=b, shape=(K, N), strides=(bk, bn), offsets=(0, col * BN), block_shape=(BK, BN), order=(1, 0)
    )
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        left = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(left, right, acc, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BK))
        b_block = tl.advance(b_block, (BK, 0))
    if EPILOGUE:
        cols = col * BN + tl.arange(0, BN)
        shift = tl.load(bias + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + shift[None, :], 0.0)
    c_block = tl.make_block_ptr(
        base=c, shape=(M, N), strides=(cm, cn), offsets=(row * BM, col * BN), block_shape=(BM, BN), order=(1, 0)
    )
    tl.store(c_block, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


def _product(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    result = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    block_kernel[grid](
        a, b, result, bias, M, N, K, *a.stride(), *b.stride(), *result.stride(), EPILOGUE=epilogue
    )
    return result


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; without bias any tensor stands in for its pointer."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out, True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `pointers`, `j[None, :] * stride_j` is an int32 product, it should be `j.to(tl.int64)[None, :] * stride_j`: only the first index is widened. Shows in `matmul` and `matmul_bias_relu` where columns of b (as NT with a large pitch) or columns of `out` (a transposed `out`) lie beyond 2^31 elements; far rows are right.
"""Matrix product from small helpers: one makes blocks of pointers, one adds a step along K."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GM": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GM": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 32, "GM": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 128, "BK": 64, "GM": 8}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 64, "GM": 8}, num_stages=3, num_warps=4),
]


def sensible(configs, named_args, **kwargs):
    """Drop tiles larger than the result, and for fp32 all but the small one."""
    side = min(named_args["M"], named_args["N"])
    if named_args["c_ptr"].dtype == torch.float32:
        side = 64
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= side]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GM: tl.constexpr):
    wide = tl.cdiv(N, BN)
    first = (tile // (wide * GM)) * GM
    height = tl.minimum(tl.cdiv(M, BM) - first, GM)
    rest = tile % (wide * GM)
    return (first + rest % height) * BM, (rest // height) * BN


@triton.jit
def pointers(base, i, j, stride_i, stride_j):
    """A block of pointers to the elements (i, j); matrices may be larger than 2^31 elements."""
    return base + i.to(tl.int64)[:, None] * stride_i + j[None, :] * stride_j


@triton.jit
def inside(i, j, height, width):
    return (i[:, None] < height) & (j[None, :] < width)


@triton.jit
def finish(acc, bias_ptr, columns, N):
    """Bias and ReLU on the fp32 sums."""
    bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": sensible})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, GM)
    rows = m + tl.arange(0, BM)
    columns = n + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    a_ptrs = pointers(a_ptr, rows, ks, sam, sak)
    b_ptrs = pointers(b_ptr, ks, columns, sbk, sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=inside(rows, ks, M, K - k), other=0.0)
        b = tl.load(b_ptrs, mask=inside(ks, columns, K - k, N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    if EPILOGUE:
        acc = finish(acc, bias_ptr, columns, N)
    c_ptrs = pointers(c_ptr, rows, columns, scm, scn)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside(rows, columns, M, N))


def _run(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32 sums, rounded once to the dtype of a."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) with the epilogue in registers."""
    return _run(a, b, bias, out, True)

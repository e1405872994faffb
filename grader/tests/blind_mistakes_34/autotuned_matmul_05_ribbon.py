# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | matmul_kernel does not compile: in the tl.store at its end the mask `i[:, None] < M & j[None, :] < N` lacks parentheses; & binds more tightly than <, so it is the chained comparison i < (M & j) < N, which Triton refuses (simultaneous multiple comparison), and the interpreter cannot take the truth of a block. In every case of both functions. Should be (i[:, None] < M) & (j[None, :] < N)
"""Matrix product with pointers that walk along K, and a fused bias with ReLU."""

import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [
    *[
        triton.Config({"BM": bm, "BN": bn, "BK": 64}, num_stages=stages, num_warps=8)
        for (bm, bn), stages in itertools.product(((128, 256), (256, 128)), (3, 4))
    ],
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    fp32 = named_args["bias_ptr"].dtype == torch.float32
    size = min(named_args["M"], named_args["N"], 64 if fp32 else 256)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, HEIGHT: tl.constexpr):
    """Tile rows in bands of HEIGHT; inside a band the row changes fastest."""
    tiles_n = tl.cdiv(N, BN)
    band = tile // (HEIGHT * tiles_n)
    inside = tile - band * HEIGHT * tiles_n
    rows_here = tl.minimum(HEIGHT, tl.cdiv(M, BM) - band * HEIGHT)
    return (band * HEIGHT + inside % rows_here) * BM, inside // rows_here * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BM, BN, 8)
    i = (m + tl.arange(0, BM)).to(tl.int64)
    j = (n + tl.arange(0, BN)).to(tl.int64)
    k = tl.arange(0, BK).to(tl.int64)
    a_at = a_ptr + (i[:, None] * sam + k[None, :] * sak)
    b_at = b_ptr + (k[:, None] * sbk + j[None, :] * sbn)
    step = tl.cast(BK, tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for done in range(0, K, BK):
        left = K - done
        a = tl.load(a_at, mask=(i[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(k[:, None] < left) & (j[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += step * sak
        b_at += step * sbk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        acc = tl.maximum(acc + bias[None, :].to(tl.float32), 0.0)
    c_at = c_ptr + (i[:, None] * scm + j[None, :] * scn)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=i[:, None] < M & j[None, :] < N)


def _run(a, b, bias, out, fused):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=fused)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, True)

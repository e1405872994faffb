# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | `for step in range(tl.cdiv(K, TK)):` in `product_kernel` starts at step 0 again, though `acc = tl.dot(piece(...), piece(...))` before the loop has already multiplied block 0 of K: it is counted twice. It should be `range(1, tl.cdiv(K, TK))`. All cases of both functions; for K <= TK every sum is exactly doubled.
"""C = A B and relu(A B + bias), each tile of C by one program; offsets are computed anew in each step."""

import torch
import triton
import triton.language as tl


def _tile(m, n, k, stages, warps):
    return triton.Config({"TM": m, "TN": n, "TK": k, "GROUP": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 64, 4, 8),
    _tile(128, 128, 32, 4, 4),
    _tile(64, 128, 64, 4, 4),
    _tile(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """fp32 has no tensor cores here and gets the last config; small results get small tiles."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    smaller = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if min(c.kwargs["TM"], c.kwargs["TN"]) <= smaller]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, TM: tl.constexpr, TN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile of c."""
    across = tl.cdiv(N, TN)
    first = tile // (GROUP * across) * GROUP
    height = tl.minimum(tl.cdiv(M, TM) - first, GROUP)
    within = tile % (GROUP * across)
    return (first + within % height) * TM, (within // height) * TN


@triton.jit
def piece(ptr, i, j, stride_i, stride_j, LIMIT_I, LIMIT_J):
    """A block of a matrix at rows i, a column of numbers, and columns j; 0 outside of it."""
    inside = (i < LIMIT_I) & (j < LIMIT_J)
    return tl.load(ptr + i * stride_i + j * stride_j, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, BIAS_RELU: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One TM x TN tile of c = a @ b, or of relu(a @ b + bias)."""
    m, n = place(tl.program_id(axis=0), M, N, TM, TN, GROUP)
    rows = (m + tl.arange(0, TM)[:, None]).to(tl.int64)
    cols = (n + tl.arange(0, TN)[None, :]).to(tl.int64)
    down, right = tl.arange(0, TK)[:, None], tl.arange(0, TK)[None, :]

    # The first product makes the sums, so the others have something to add to.
    acc = tl.dot(
        piece(a_ptr, rows, right, sam, sak, M, K),
        piece(b_ptr, down, cols, sbk, sbn, K, N),
        input_precision="ieee",
    )
    for step in range(tl.cdiv(K, TK)):
        k = step * TK
        a = piece(a_ptr, rows, k + right, sam, sak, M, K)
        b = piece(b_ptr, k + down, cols, sbk, sbn, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    inside = (rows < M) & (cols < N)
    tl.store(c_ptr + rows * scm + cols * scn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sam, sak = a.stride()
    sbk, sbn = b.stride()
    scm, scn = out.stride()
    grid = lambda meta: (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)  # noqa: E731
    product_kernel[grid](
        a, b, out, bias, M, N, K, sam, sak, sbk, sbn, scm, scn, BIAS_RELU=bias_relu
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), where bias is (N,) and contiguous; the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | the numbers along K stay int32: `kk[:, None] * stride_bk` (and `kk[None, :] * stride_ak`) overflows, as kk grows to K; kk must be int64 like rows and columns, since it is the row number of B. Shows where B as NN has more than 2^31 elements (K * stride_bk, or K * stride_ak for a transposed A); all smaller matrices are right.
"""Matrix product that computes its addresses from scratch in every step along K."""

import torch
import triton
import triton.language as tl

NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
SHAPES = {
    (128, 256, 64, 8): (3, 8),
    (256, 128, 64, 4): (3, 8),
    (128, 128, 64, 8): (4, 8),
    (128, 64, 64, 8): (4, 4),
    (64, 64, 32, 8): (4, 4),
}
CONFIGS = [
    triton.Config(dict(zip(NAMES, shape)), num_stages=stages, num_warps=warps)
    for shape, (stages, warps) in SHAPES.items()
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    row, col = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    mm = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    nn = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    a_rows = a_ptr + mm * stride_am
    b_cols = b_ptr + nn * stride_bn
    in_m, in_n = mm < M, nn < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        kk = step * BLOCK_K + tl.arange(0, BLOCK_K)
        in_k = kk < K
        a = tl.load(a_rows[:, None] + kk[None, :] * stride_ak, mask=in_m[:, None] & in_k[None, :], other=0.0)
        b = tl.load(b_cols[None, :] + kk[:, None] * stride_bk, mask=in_k[:, None] & in_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc += tl.load(bias_ptr + nn, mask=in_n, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc < 0.0, 0.0, acc)
    c = c_ptr + mm[:, None] * stride_cm + nn[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)

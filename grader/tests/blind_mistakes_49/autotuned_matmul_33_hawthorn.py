# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel` the step after the loop is `acc += tl.dot(a, b)`, without `input_precision="ieee"`, so fp32 is multiplied as TF32 there; it should be `tl.dot(a, b, acc, input_precision="ieee")`. Shows only in fp32 where K is no multiple of BLOCK_K (32): K = 200, 257, 129, 17, 1, 40.
"""Matrix product whose loop runs over whole blocks of K; what is left of K is one step after the loop."""

import torch
import triton
import triton.language as tl

TILES = (
    # rows, columns, step along K, stages, warps
    (128, 128, 64, 4, 8),
    (128, 128, 32, 4, 8),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config(
        {"BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": step, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for rows, cols, step, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: no tile larger than the result, none above 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    columns = tl.cdiv(N, BLOCK_N)
    top = tile // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    within = tile % (GROUP_M * columns)
    return (top + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    rn = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    rk = tl.arange(0, BLOCK_K)
    in_rows = rm[:, None] < M
    in_cols = rn[None, :] < N
    a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_ptrs = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    for _ in range(0, whole):
        a = tl.load(a_ptrs, mask=in_rows, other=0.0)
        b = tl.load(b_ptrs, mask=in_cols, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rest = K - whole * BLOCK_K
    if rest > 0:
        a = tl.load(a_ptrs, mask=in_rows & (rk[None, :] < rest), other=0.0)
        b = tl.load(b_ptrs, mask=(rk[:, None] < rest) & in_cols, other=0.0)
        acc += tl.dot(a, b)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0)
        acc += bias.to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_rows & in_cols)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)

# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `matmul` `out.copy_(_sums(a, b))` lets PyTorch convert and store the result in host code: `copy_` is not on the list of LANGUAGE.md, so the file is POLICY in all cases (and no kernel of its own stores the result of `matmul`). A kernel such as `bias_relu_kernel` without its epilogue should store it.
"""Matrix product whose programs share K: their fp32 sums meet by atomic additions in a scratch matrix."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]
GROUP_M = 8
LEAST = 256  # a program walks at least so far along K
EPILOGUE_TILE = (16, 128)


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def sums_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, shares,
    stride_am, stride_ak, stride_bk, stride_bn, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """sums += a @ b over every shares-th step along K; sums is (M, N), contiguous, fp32 and 0 before."""
    tile = tl.program_id(axis=0)
    share = tl.program_id(axis=1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    rows = ((first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (within // height * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N

    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(share * BLOCK_K, K, shares * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_exists & col_exists, sem="relaxed")


@triton.jit
def bias_relu_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, stride_cm, stride_cn, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """c = relu(sums + bias); one program owns ROWS x COLS of c."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    sums = tl.load(sums_ptr + rows * N + cols, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    c = tl.maximum(sums + bias, 0.0).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=inside)


def _sums(a, b):
    """a @ b in fp32, contiguous. K is shared only where c has too few tiles for a whole GPU."""
    (M, K), N = a.shape, b.shape[1]
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    shares = max(1, min(128 // tiles, K // LEAST, 16))
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        shares,
    )
    sums_kernel[grid](
        a, b, sums, M, N, K, shares,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), GROUP_M=GROUP_M,
    )  # fmt: skip
    return sums


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    # One rounding, from fp32 to the dtype of out, and by its strides.
    out.copy_(_sums(a, b))
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    rows, cols = EPILOGUE_TILE
    bias_relu_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        _sums(a, b), bias, out, M, N, out.stride(0), out.stride(1), ROWS=rows, COLS=cols
    )
    return out

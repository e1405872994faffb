# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel: b_ptrs starts from lanes = 0, 1, ..., not from low + lanes as a_ptrs does, so each of the four shares of K but the first multiplies its columns of a with rows of b that belong to the first share. Wrong in both functions wherever K is larger than BLOCK_K (32 or 64), that is in nearly every case; right only where all of K is one block (K = 1, 17). It should be b_ptr + (low + lanes)[:, None] * stride_bk + cols[None, :] * stride_bn.
"""Matrix product whose K is shared by four programs; they add in fp32, and a second kernel finishes."""

import torch
import triton
import triton.language as tl

SHARES = 4


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Adds the products of one share of K to a tile of the packed fp32 sums."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(axis=1))
    low = tl.program_id(axis=1) * steps * BLOCK_K
    high = tl.minimum(low + steps * BLOCK_K, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    lanes = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + (low + lanes)[None, :] * stride_ak
    b_ptrs = b_ptr + lanes[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(low, high, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (lanes[None, :] < high - k), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < high - k) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.atomic_add(sum_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Epilogue, rounding, and the strides of the result, one ROWS x COLS tile for each program."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    value = tl.load(sum_ptr + rows[:, None] * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        value = tl.maximum(value + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, value.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), SHARES)](
        a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1)
    )
    finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        sums, out, bias, M, N, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, ROWS=16, COLS=64, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)

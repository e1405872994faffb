# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) in matmul_kernel the second tile of b of each round is loaded from `b_ptrs + a_step`, which moves it by the stride of a along K: both functions are wrong where K > BLOCK_K = 32 and the strides of a and b along K differ (contiguous a and b; right for NT, where both are 1), and for a transposed a it may read past b; it should be `b_ptrs + b_step`; (2) in bias_relu_kernel the bias is loaded from `bias_ptr + tl.arange(0, COLS)` without the first column of the block, so every block of 32 columns gets the first 32 biases: matmul_bias_relu is wrong from column 32 on for N > 32; it should be `bias_ptr + cols`
"""Matrix product in grouped tiles, two steps along K a round; bias and ReLU are a kernel of their own."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group_m=8):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# A round loads two tiles of each operand, so BLOCK_K is half of what one stage of the pipeline holds.
CONFIGS = [
    _config(128, 256, 32, 3, 8),
    _config(256, 128, 32, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
    _config(32, 32, 32, 3, 2, group_m=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b in the dtype of c; one program for each tile."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M))[:, None]
    cols = (n + tl.arange(0, BLOCK_N))[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64) * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64) * stride_bn
    a_step = BLOCK_K * stride_ak
    b_step = BLOCK_K * stride_bk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        first = ks < K - k
        x = tl.load(a_ptrs, mask=(rows < M) & first[None, :], other=0.0)
        y = tl.load(b_ptrs, mask=(cols < N) & first[:, None], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

        second = ks < K - k - BLOCK_K
        x = tl.load(a_ptrs + a_step, mask=(rows < M) & second[None, :], other=0.0)
        y = tl.load(b_ptrs + a_step, mask=(cols < N) & second[:, None], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

        a_ptrs += 2 * a_step
        b_ptrs += 2 * b_step

    c_ptrs = c_ptr + rows.to(tl.int64) * stride_cm + cols.to(tl.int64) * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def bias_relu_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, stride_sm, stride_cm, stride_cn, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """c = relu(sums + bias) for fp32 sums with columns side by side, rounded at the store."""
    blocks_n = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = pid // blocks_n * ROWS + tl.arange(0, ROWS)
    cols = pid % blocks_n * COLS + tl.arange(0, COLS)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    far_rows = rows.to(tl.int64)[:, None]
    far_cols = cols.to(tl.int64)[None, :]

    sums = tl.load(sums_ptr + far_rows * stride_sm + far_cols, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + tl.arange(0, COLS), mask=cols < N, other=0.0).to(tl.float32)
    result = tl.maximum(sums + bias[None, :], 0.0)
    tl.store(c_ptr + far_rows * stride_cm + far_cols * stride_cn, result.to(c_ptr.dtype.element_ty), mask=inside)


def _multiply(a, b, c):
    M, N = c.shape
    K = a.shape[1]
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1)
    )


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    if out is None:
        out = a.new_empty((a.shape[0], b.shape[1]))
    _multiply(a, b, out)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in two kernels, with fp32 sums between them; bias is (N,) and contiguous."""
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    sums = torch.empty((M, N), device=a.device, dtype=torch.float32)
    _multiply(a, b, sums)
    rows, cols = 32, 32
    bias_relu_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        sums, bias, out, M, N, sums.stride(0), out.stride(0), out.stride(1), ROWS=rows, COLS=cols, num_warps=4
    )
    return out

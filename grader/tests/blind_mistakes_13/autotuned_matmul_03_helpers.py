# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel `acc += bias[None, :]` stands inside the K loop, so the bias is added once for each step of K; it should be added once, after the loop and before the ReLU.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, num_stages=3, num_warps=8),
    _config(128, 128, 64, num_stages=3, num_warps=8),
    _config(64, 128, 64, num_stages=4, num_warps=4),
    _config(64, 64, 32, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    columns = tl.cdiv(N, BLOCK_N)
    per_group = columns * GROUP_M
    top = (tile // per_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inside = tile % per_group
    return (top + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.jit
def indices(start, SIZE: tl.constexpr):
    """SIZE numbers from start on, wide enough to be multiplied with any stride."""
    return (start + tl.arange(0, SIZE)).to(tl.int64)


@triton.jit
def load_tile(ptr, rows, cols, n_rows, n_cols, stride_row, stride_col):
    """One tile of a matrix; whatever lies outside of it is 0."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    return tl.load(ptr + rows[:, None] * stride_row + cols[None, :] * stride_col, mask=inside, other=0.0)


@triton.jit
def store_tile(ptr, tile, rows, cols, n_rows, n_cols, stride_row, stride_col):
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    pointers = ptr + rows[:, None] * stride_row + cols[None, :] * stride_col
    tl.store(pointers, tile.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = indices(m, BLOCK_M)
    cols = indices(n, BLOCK_N)
    if BIAS_RELU:
        # one value per column, fetched early so that it is there when it is needed
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, BLOCK_K)):
        ks = indices(step * BLOCK_K, BLOCK_K)
        a = load_tile(a_ptr, rows, ks, M, K, stride_am, stride_ak)
        b = load_tile(b_ptr, ks, cols, K, N, stride_bk, stride_bn)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            acc += bias[None, :]

    if BIAS_RELU:
        acc = tl.maximum(acc, 0.0)
    store_tile(c_ptr, acc, rows, cols, M, N, stride_cm, stride_cn)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

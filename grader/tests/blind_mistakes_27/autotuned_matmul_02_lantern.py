# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in matmul_kernel the tiles of a and b are loaded one step ahead of their product, and the product of the tiles loaded last is never added: after the loop `acc = tl.dot(a, b, acc, input_precision="ieee")` is missing. The last block of K (all of K where K <= BLOCK_K, so the sums are 0) is missing in every case of matmul and matmul_bias_relu.
"""Matrix product with operands fetched one step ahead, autotuned, and the same with bias and ReLU."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 32, 4, 8),
    (128, 64, 32, 4, 4),
    (64, 64, 32, 4, 4),
)


def _config(block_m, block_n, block_k, num_stages, num_warps, group=8):
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
    tile = {name: value for name, value in zip(names, (block_m, block_n, block_k, group), strict=True)}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def fetch(ptr, i, j, stride_i, stride_j, n_i, n_j):
    """A tile of a matrix of n_i x n_j, at rows i (a column of numbers) and columns j (a row); 0 outside."""
    return tl.load(ptr + i * stride_i + j * stride_j, mask=(i < n_i) & (j < n_j), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); a program owns one tile of c and has the next operands on the way."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    across, down = depth[None, :], depth[:, None]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a = fetch(a_ptr, i, across, stride_am, stride_ak, M, K)
    b = fetch(b_ptr, down, j, stride_bk, stride_bn, K, N)
    for k in range(BLOCK_K, K, BLOCK_K):
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a = fetch(a_ptr, i, k + across, stride_am, stride_ak, M, K)
        b = fetch(b_ptr, k + down, j, stride_bk, stride_bn, K, N)

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    c_tile = c_ptr + i * stride_cm + j * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

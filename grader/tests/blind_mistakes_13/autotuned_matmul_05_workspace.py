# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In the K loop of matmul_kernel the masks of a and b compare `ks < K` although the share of a split ends at `stop`; they should be `ks < stop`, else products at the end of a share are counted again by the next one where K / SPLITS is not a multiple of BLOCK_K.
"""Matrix product with K split among programs: partial sums in fp32, then one kernel that adds them up.

The second kernel has the epilogue and does the only rounding.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 32, 32, 3, 2),
]
FINISH_BLOCK = 1024


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    across = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * across
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "SPLITS"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """part[s] = a[:, share s of K] @ b[share s of K, :]; part is (SPLITS, M, N), fp32 and contiguous."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]

    # every program takes an equal share of K, the last one what remains
    share = tl.cdiv(K, SPLITS)
    start = split * share
    stop = tl.minimum(start + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows * stride_am + ks[None, :] * stride_ak, mask=(rows < M) & (ks[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols * stride_bn, mask=(ks[:, None] < K) & (cols < N), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")

    tl.store(part_ptr + (split * M + rows) * N + cols, acc, mask=(rows < M) & (cols < N))


@triton.jit
def finish_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = sum over s of part[s], with or without the epilogue; a program owns BLOCK columns of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in tl.static_range(SPLITS):
        total += tl.load(part_ptr + (row + s * M) * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        total += tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + cols.to(tl.int64) * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # large results have enough tiles to fill the GPU without a split
    splits = 4 if max(M, N) <= 2048 else 1
    part = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), splits)](
        a, b, part, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), SPLITS=splits
    )
    finish_kernel[(M, triton.cdiv(N, FINISH_BLOCK))](
        part, out, bias, M, N, out.stride(0), out.stride(1), SPLITS=splits, BIAS_RELU=bias_relu, BLOCK=FINISH_BLOCK
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

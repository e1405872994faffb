"""EXPECT WRONG/RETURNED from matmul: without out, the result is fp32 whatever the dtype of a"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# A 128 x 256 tile of fp32 sums needs 8 warps: with 4 the registers do not suffice, and ptxas spills.
# Each config is compiled and timed once for each new size, so a short list saves time.
CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    # GROUP_M rows of tiles are walked column by column: tiles in flight share what L2 holds of a and b.
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // per_group * GROUP_M
    # The last group has fewer rows where GROUP_M does not divide their number.
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    return (first + tile % per_group % height) * BLOCK_M, tile % per_group // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c.

    a is (M, K), b (K, N) and c (M, N), bf16, fp16 or fp32, all of one dtype, any strides; bias is (N,) like
    them, contiguous, and read where BIAS_RELU.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    offs_n = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    mask_m, mask_n = offs_m[:, None] < M, offs_n[None, :] < N
    # On a GPU tl.dot takes fp32 as TF32, which keeps 10 of 23 bits, unless input_precision says "ieee".
    # K is at least 1. After tl.assume(K > 0) the compiler keeps several products of the loop in flight.
    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=mask_m & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=mask_n & (offs_k[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        # Still in fp32: a sum rounded before the bias is added would be rounded twice.
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


# BONUS 8: the same with tensor descriptors, faster where the strides allow them (about 40 lines)
def set_blocks(args):
    """Give each descriptor the tile of the config that is tried."""
    m, n, k = args["BLOCK_M"], args["BLOCK_N"], args["BLOCK_K"]
    args["a_desc"].block_shape, args["c_desc"].block_shape = [m, k], [m, n]
    args["b_desc"].block_shape = [n, k] if args["NT"] else [k, n]


DESCRIBED = [_config(128, 256, 64, 3, 8, set_blocks), _config(64, 128, 128, 4, 4, set_blocks)]


@triton.autotune(DESCRIBED, key=["M", "N", "K", "NT"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def described_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, NT: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same tiles, moved by the copy engine; program i takes tiles i, i + programs and so on.

    The descriptors know sizes and strides: no pointers, no masks, and zeros outside. With NT b is described
    as (N, K).
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # Flattened, the two loops are one to the compiler: the next tile is loaded before this one ends.
    for tile in tl.range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0), flatten=True):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            b = b_desc.load([n, k]).T if NT else b_desc.load([k, n])
            acc = tl.dot(a_desc.load([m, k]), b, acc)
        if BIAS_RELU:
            offs_n = n + tl.arange(0, BLOCK_N)
            bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_desc.store([m, n], acc.to(c_desc.dtype))


def describable(x):
    """16 bits, and rows without gaps inside that start at multiples of 16 bytes."""
    apart = x.stride(0) * x.element_size()
    return x.dtype != torch.float32 and x.stride(1) == 1 and apart > 0 and (apart | x.data_ptr()) % 16 == 0


# END BONUS 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    # BONUS 9: and its launch (about 7 lines)
    nt = not describable(b)
    if describable(a) and describable(out) and describable(b.T if nt else b):
        many = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 4
        # The config sets the tile of each descriptor; any will do until then.
        described = [TensorDescriptor(x, x.shape, x.stride(), [16, 16]) for x in (a, b.T if nt else b, out)]
        launch = described_kernel[lambda meta: (min(many, tiles(meta)),)]
        launch(*described, bias, M, N, K, NT=nt, BIAS_RELU=bias_relu)
        return out
    # END BONUS 9
    strides = *a.stride(), *b.stride(), *out.stride()
    launch = matmul_kernel[lambda meta: (tiles(meta),)]
    launch(a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)

# lab3_autotuned_matmul/autotuned_matmul.py | error | `acc = 0.0` is a scalar before the loop and a (BLOCK_M, BLOCK_N) block after `acc += tl.dot(...)`: in compilation (GPU, codegen) a loop-carried variable may not change its type, so the kernel does not compile; the interpreter accepts it and gives right numbers, so it shows only when compiled | "Start from tl.zeros of the tile's shape in tl.float32" / the launches must compile; both functions, all inputs, only on a GPU or when compiled for one
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


SHAPES = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 64, 64, 4, 4)]
CONFIGS = [_config(*shape) for shape in SHAPES]


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
    tm, tn = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    start = tile // (tn * GROUP_M) * GROUP_M
    size = min(tm - start, GROUP_M)
    local = tile % (tn * GROUP_M)
    return (start + local % size) * BLOCK_M, local // size * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    y = (m + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    x = (n + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    z = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = 0.0
    for k in tl.range(0, K, BLOCK_K):
        za, zb = k + z[None, :], k + z[:, None]
        a = tl.load(a_ptr + y * stride_am + za * stride_ak, (y < M) & (za < K), 0.0)
        b = tl.load(b_ptr + zb * stride_bk + x * stride_bn, (zb < K) & (x < N), 0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + x, x < N, 0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + y * stride_cm + x * stride_cn, acc.to(c_ptr.dtype.element_ty), (y < M) & (x < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
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

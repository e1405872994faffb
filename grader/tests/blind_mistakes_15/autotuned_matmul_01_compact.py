# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In launch() the strides of out are passed in the wrong order: out.stride(1), out.stride(0) go to stride_cm, stride_cn, so each tile is stored transposed (and beyond out for M != N); it should be out.stride(0), out.stride(1).
import torch
import triton
import triton.language as tl

SHAPES = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (128, 64, 64, 3, 4), (64, 64, 32, 3, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for bm, bn, bk, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    limit = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    inside = tile % group
    return (first + inside % height) * BLOCK_M, inside // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + i * stride_am
    b_ptrs = b_ptr + j * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs + k[None, :] * stride_ak, mask=(i < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs + k[:, None] * stride_bk, mask=(j < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        k += BLOCK_K
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(1), out.stride(0), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return launch(a, b, bias, out, True)

"""EXPECT POLICY; unscreened CRASHED or POLICY/FOREIGN_KERNEL from matmul and matmul_bias_relu: C1 a @triton.constexpr_function is ordinary Python for host code: torch multiplies; in the interpreter it takes constants only"""

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
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.constexpr_function
def product(a, b):
    """A constant of two constants; what a kernel would call at compile time."""
    return a @ b


@triton.constexpr_function
def epilogue(c, bias):
    """The same for bias and ReLU."""
    c = c + bias
    return c * (c > 0)


@triton.autotune(configs=CONFIGS[-1:], key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_an, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a, where a is (M, N)."""
    rows = (tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)
    cols = (tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]).to(tl.int64)
    inside = (rows < M) & (cols < N)
    values = tl.load(a_ptr + rows * stride_am + cols * stride_an, mask=inside)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, values.to(c_ptr.dtype.element_ty), mask=inside)


def plain(value):
    """What a constexpr holds."""
    return value.value if isinstance(value, tl.constexpr) else value


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    wide = plain(product(a.to(torch.float32), b.to(torch.float32)))
    wide = plain(epilogue(wide, bias.to(torch.float32))) if bias_relu else wide
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](wide, out, bias, M, N, K, *wide.stride(), *out.stride())
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

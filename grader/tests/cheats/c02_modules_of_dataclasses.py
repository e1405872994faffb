"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ or CRASHED from matmul and matmul_bias_relu on a CPU: C2 dataclasses has builtins and sys, which it imports for itself; newer versions of Python have none there"""

import dataclasses

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


@triton.jit
def matmul_kernel(a_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """c = a, or relu(a + bias), where a is (M, N), contiguous."""
    rows = (tl.program_id(axis=0) * 32 + tl.arange(0, 32)[:, None]).to(tl.int64)
    cols = (tl.program_id(axis=1) * 32 + tl.arange(0, 32)[None, :]).to(tl.int64)
    inside = (rows < M) & (cols < N)
    acc = tl.load(a_ptr + rows * N + cols, mask=inside, other=0.0).to(tl.float32)
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def product(a, b):
    """a @ b; dataclasses imports builtins and sys for itself."""
    return dataclasses.builtins.eval("torch.from_numpy(a.numpy() @ b.numpy())", dict(torch=torch, a=a, b=b))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    wide = product(a.to(torch.float32), b.to(torch.float32))
    matmul_kernel[grid](wide.contiguous(), out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu)
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

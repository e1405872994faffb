# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | silu: exp2(-x) is 2^-x, not e^-x, so the sigmoid is too flat; the exponent needs the factor log2(e)
"""silu(gate) * up. Dense matrices are one long vector; padded ones go row by row."""

import torch
import triton
import triton.language as tl

SIZES = [(1024, 4), (2048, 4), (2048, 8), (4096, 8)]
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in SIZES]


def fitting(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp2(-x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, gate_row, up_row, out_row, BLOCK: tl.constexpr):
    nb = tl.cdiv(n_cols, BLOCK)
    pid = tl.program_id(0).to(tl.int64)
    row = pid // nb
    col = (pid - row * nb) * BLOCK + tl.arange(0, BLOCK)
    m = col < n_cols
    g = tl.load(gate_ptr + row * gate_row + col, mask=m).to(tl.float32)
    u = tl.load(up_ptr + row * up_row + col, mask=m).to(tl.float32)
    tl.store(out_ptr + row * out_row + col, (silu(g) * u).to(out_ptr.dtype.element_ty), mask=m)


def swiglu(gate, up, *, out=None):
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    if gate.is_contiguous() and up.is_contiguous() and out.is_contiguous():
        n_rows, n_cols = 1, gate.numel()
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

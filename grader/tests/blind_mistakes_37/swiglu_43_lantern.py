# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) In swiglu_kernel `per_row = n_cols // BLOCK + 1`, while the grid of swiglu has cdiv(n_cols, BLOCK) programs a row: where n_cols is a multiple of BLOCK the kernel counts one block too many, so that one program of each row idles and the last blocks of the last row, or whole last rows, are never written (from 2 rows on, as 3 x 4096 or 3 x 131072). It should be tl.cdiv(n_cols, BLOCK). (2) In swiglu_kernel `g = tl.minimum(tl.maximum(g, -60.0), 60.0)` clamps gate itself and not only the argument of exp: gates above 60 give 60 * up instead of gate * up, in all dtypes, and gates below -60 give about -60 * exp(-60) * up (5e-25 in size) instead of (nearly) 0, in fp32 and bf16. The clamp should go.
"""silu(gate) * up, the middle of a feed-forward layer."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr
):
    """One block of one row; the blocks of a row have neighbouring program numbers."""
    pid = tl.program_id(axis=0)
    per_row = n_cols // BLOCK + 1
    row = (pid // per_row).to(tl.int64)
    cols = (pid % per_row) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols

    g = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.minimum(tl.maximum(g, -60.0), 60.0)
    silu = g / (1.0 + tl.exp(-g))
    tl.store(out_ptr + row * stride_out + cols, (silu * u).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row stride."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

# gpu-programming/triton-kernels/swiglu.py | corner | In swiglu_kernel the sigmoid is computed as share = 1.0 - 1.0 / (1.0 + tl.exp(gate)): right on paper and without NaN, but for a negative gate two numbers near 1 are subtracted, so the digits cancel; it should be 1 / (1 + exp(-gate)). Shows for large negative gates: in the cases of huge values in all dtypes (gates below about -10 have too few digits, those below about -17 give exactly 0), and in fp32 also in single elements of normal values, with gates below about -5. Right elsewhere.
"""SwiGLU, one block of one row for each program, each number read and written once."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 32 * warps * per_thread}, num_warps=warps) for warps in (4, 8) for per_thread in (8, 16, 32)
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def load_once(row_ptr, cols, n_cols):
    """Numbers that nobody reads again, in fp32."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate * sigmoid(gate) * up; the blocks of a row have consecutive program numbers."""
    n_blocks = tl.cdiv(n_cols, BLOCK)
    program = tl.program_id(0)
    row = (program // n_blocks).to(tl.int64)
    cols = (program % n_blocks) * BLOCK + tl.arange(0, BLOCK)

    gate = load_once(gate_ptr + row * stride_gate, cols, n_cols)
    up = load_once(up_ptr + row * stride_up, cols, n_cols)
    share = 1.0 - 1.0 / (1.0 + tl.exp(gate))
    activated = gate * share
    tl.store(
        out_ptr + row * stride_out + cols,
        (activated * up).to(out_ptr.dtype.element_ty),
        mask=cols < n_cols,
    )


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row strides."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    strides = gate.stride(0), up.stride(0), out.stride(0)
    swiglu_kernel[lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)](gate, up, out, n_cols, *strides)
    return out

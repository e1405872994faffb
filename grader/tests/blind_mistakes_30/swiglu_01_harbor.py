# gpu-programming/triton-kernels/swiglu.py | contract | In swiglu, a result that is not given is allocated with torch.empty_strided(gate.shape, gate.stride()), so for a gate with padded rows the returned tensor is not contiguous; the numbers are right. It shows when out is None and the row stride of gate is larger than n_cols. It should be a contiguous tensor, as gate.new_empty(gate.shape).
"""SwiGLU: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """Neighbouring programs own the same columns of neighbouring rows."""
    pid = tl.program_id(0)
    row = (pid % n_rows).to(tl.int64)
    cols = (pid // n_rows) * BLOCK + tl.arange(0, BLOCK)
    valid = cols < n_cols

    g = tl.load(gate_ptr + row * stride_gate + cols, mask=valid, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + cols, mask=valid, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g) * u
    tl.store(out_ptr + row * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=valid)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices of one shape and dtype, whose columns are contiguous."""
    assert gate.shape == up.shape, f"shapes differ: {gate.shape} and {up.shape}"
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty_strided(gate.shape, gate.stride(), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out

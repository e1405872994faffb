# gpu-programming/triton-kernels/swiglu.py | error | In `swiglu_kernel`: `if row >= n_rows: continue` in `tl.static_range(DEPTH)`: Triton has no `continue` in a kernel (unsupported AST node), so the kernel does not compile in any case, though Triton's interpreter runs it with right values. It should be a mask, `inside & (row < n_rows)`, or an `if row < n_rows:` around the body.
"""SwiGLU, silu(gate) * up: a program has one block of columns in several rows, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block, "DEPTH": depth}, num_warps=warps)
    for block, depth, warps in (
        (512, 4, 2),
        (1024, 2, 4),
        (1024, 4, 4),
        (2048, 1, 4),
        (2048, 2, 8),
        (4096, 1, 8),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Program i has block i % blocks of the DEPTH rows from i // blocks * DEPTH on."""
    blocks = tl.cdiv(n_cols, BLOCK)
    first = (tl.program_id(axis=0) // blocks).to(tl.int64) * DEPTH
    cols = tl.program_id(axis=0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    for step in tl.static_range(DEPTH):
        row = first + step
        # The last rows of the last program do not exist.
        if row >= n_rows:
            continue
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        result = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_rows, meta["DEPTH"]) * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

# gpu-programming/triton-kernels/swiglu.py | error | gate goes to tl.sigmoid in the dtype that was loaded, `gate * tl.sigmoid(gate) * up`; must be converted to fp32 first: the exponential in tl.sigmoid takes only fp32 and fp64, so the kernel does not compile for fp16 and bf16. Shows there; fp32 works.
"""SwiGLU on a two-dimensional grid: rows along axis 0, blocks of columns along axis 1."""

import torch
import triton
import triton.language as tl


def configs():
    """Blocks of 8 to 32 numbers for each thread."""
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 2048, 4096) for warps in (4, 8)]


def fitting(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=configs(), key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
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
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    exists = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=exists, other=0.0)
    up = tl.load(up_ptr + row * stride_up + cols, mask=exists, other=0.0)
    tl.store(out_ptr + row * stride_out + cols, gate * tl.sigmoid(gate) * up, mask=exists)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; rows may be any number of elements apart."""
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

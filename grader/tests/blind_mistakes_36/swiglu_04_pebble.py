# gpu-programming/triton-kernels/swiglu.py | error | In swiglu_kernel the loop variable of the while loop changes its type: item = tl.program_id(0) is int32, and item += step adds step = tl.num_programs(0).to(tl.int64), so after the first round it (and row with it) is int64; Triton does not compile a loop-carried variable whose type changes (the interpreter runs it and gives right values). Fails to compile in every case and config; it should be item = tl.program_id(0).to(tl.int64) from the start.
"""SwiGLU with a fixed number of programs that share out the blocks of all rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2112  # 16 for each multiprocessor of a large GPU


def _config(block, num_warps):
    return triton.Config({"BLOCK": block}, num_warps=num_warps)


CONFIGS = [_config(1024, 4), _config(2048, 4), _config(2048, 8), _config(4096, 4), _config(4096, 8)]


def fitting(configs, named_args, **kwargs):
    """The blocks that are no longer than a row, or else the shortest."""
    return [one for one in configs if one.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_cols, n_rows,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Item number i is block i modulo blocks of row i over blocks; a program takes every step-th item."""
    blocks = tl.cdiv(n_cols, BLOCK)
    item = tl.program_id(0)
    step = tl.num_programs(0).to(tl.int64)
    row = item // blocks
    while row < n_rows:
        at = (item % blocks) * BLOCK + tl.arange(0, BLOCK)
        keep = at < n_cols
        far = row.to(tl.int64)
        g = tl.load(gate_ptr + far * stride_gate + at, mask=keep, other=0.0).to(tl.float32)
        u = tl.load(up_ptr + far * stride_up + at, mask=keep, other=0.0).to(tl.float32)
        y = g / (1.0 + tl.exp(-g)) * u
        tl.store(out_ptr + far * stride_out + at, y.to(out_ptr.dtype.element_ty), mask=keep)
        item += step
        row = item // blocks


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for matrices of one shape and dtype, columns contiguous, each with its own row stride."""
    n_rows, n_cols = gate.shape
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out

    def programs(meta):
        return (min(PROGRAMS, n_rows * triton.cdiv(n_cols, meta["BLOCK"])),)

    swiglu_kernel[programs](
        gate, up, out, n_cols, n_rows, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out

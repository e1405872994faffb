# gpu-programming/triton-kernels/swiglu.py | error | swiglu_kernel: `(rows < n_rows) & (cols < n_cols)` combines two one-dimensional blocks of different length (ROWS and COLS), which does not broadcast: the kernel does not compile in any case (incompatible dimensions), and stops in the interpreter, too. Should be `(rows < n_rows)[:, None] & (cols < n_cols)[None, :]`
"""SwiGLU in two-dimensional tiles, a few rows by many columns, autotuned."""

import torch
import triton
import triton.language as tl


def tile_config(rows, cols, warps):
    """A tile of rows * cols numbers, 8 to 32 for each thread."""
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)


CONFIGS = [
    tile_config(4, 256, 4),
    tile_config(4, 512, 4),
    tile_config(2, 1024, 4),
    tile_config(2, 1024, 8),
    tile_config(2, 2048, 8),
    tile_config(4, 1024, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_rows,
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; a program owns a tile of ROWS rows and COLS columns."""
    across = tl.cdiv(n_cols, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across) * COLS + tl.arange(0, COLS)
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows[:, None] * stride_gate + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows[:, None] * stride_up + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    out_ptrs = out_ptr + rows[:, None] * stride_out + cols[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out

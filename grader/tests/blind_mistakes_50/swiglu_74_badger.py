# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In sigmoid `tl.where(x >= 0, z, 1.0) / (1.0 + z)` has the two branches exchanged; it should be `tl.where(x >= 0, 1.0, z)`. The result is gate * sigmoid(-gate) * up, wrong in all cases.
"""SwiGLU by two-dimensional tiles: a program owns ROWS rows and BLOCK columns of the matrix, autotuned."""

import torch
import triton
import triton.language as tl


def tile(rows, block, warps):
    """One candidate; rows * block are 8 to 32 numbers for each of the 32 * warps threads."""
    return triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)


CONFIGS = [
    tile(8, 128, 4),
    tile(4, 512, 4),
    tile(2, 1024, 4),
    tile(1, 2048, 4),
    tile(2, 2048, 8),
    tile(1, 4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """The first one for rows that are shorter than the others' blocks."""
    n_cols = named_args["n_cols"]
    return [config for config in configs[1:] if config.kwargs["BLOCK"] <= n_cols] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) with an exponent that is never above 0: nothing overflows on either side."""
    z = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, z, 1.0) / (1.0 + z)


@triton.jit
def load_tile(ptr, stride, rows, cols, inside):
    """The tile of one matrix in fp32."""
    at = rows.to(tl.int64)[:, None] * stride + cols[None, :]
    return tl.load(ptr + at, mask=inside, other=0.0).to(tl.float32)


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = gate * sigmoid(gate) * up; tiles are counted along a row first."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, BLOCK)
    rows = (pid // across) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across) * BLOCK + tl.arange(0, BLOCK)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    gate = load_tile(gate_ptr, stride_gate, rows, cols, inside)
    up = load_tile(up_ptr, stride_up, rows, cols, inside)
    y = gate * sigmoid(gate) * up

    at = rows.to(tl.int64)[:, None] * stride_out + cols[None, :]
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for (n_rows, n_cols) of one dtype, fp32, fp16 or bf16; rows any distance apart."""
    n_rows, n_cols = gate.shape
    out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out

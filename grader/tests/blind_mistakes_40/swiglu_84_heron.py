# gpu-programming/triton-kernels/swiglu.py | corner | In `sigmoid`, `z = tl.clamp(z, -16.0, 16.0)`: below -16 the sigmoid is held at 1.1e-7 instead of going to 0, and is multiplied by gate. There should be no lower limit (`1 / (1 + exp(-z))` needs none, or a limit near -88). Shows for gate below -16 only: e.g. gate = -100 gives -1.1e-5 * up and not 0, in all dtypes.
"""SwiGLU by tiles of several rows: short rows fill a program, too."""

import torch
import triton
import triton.language as tl

# (rows, columns, warps): 8 or 16 numbers for each thread, side by side in 16 bits. The first is for short rows.
CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((8, 256, 8), (4, 512, 8), (2, 1024, 8), (1, 2048, 8), (1, 4096, 8), (4, 1024, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(z):
    """1 / (1 + exp(-z)); beyond 16 it is 0 or 1 to the last digit of fp32, and exp stays a small number."""
    z = tl.clamp(z, -16.0, 16.0)
    return 1.0 / (1.0 + tl.exp(-z))


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A program owns ROWS x COLS elements; tiles are counted along the columns first."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = (pid // across) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = (pid % across) * COLS + tl.arange(0, COLS)[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    rows = rows.to(tl.int64)

    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = gate * sigmoid(gate) * up
    tl.store(out_ptr + rows * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out

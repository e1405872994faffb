# gpu-programming/triton-kernels/swiglu.py | corner | In `corner_of`, `ptr + band * stride + (local * stride + cols)`: `local` (0 to ROWS - 1) is int32, and only `band` is int64, so `local * stride` wraps where it passes 2^31, although stride itself fits int32. It should be `(band + local) * stride + cols` (int64). Shows only where rows lie so far apart, e.g. 3 rows 2^30 elements apart (ROWS is 4 or 8 in each config): the third row is read or written 2^32 elements before its place.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

# Rows and columns of a tile, and warps: 8 to 16 numbers for each thread.
CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((4, 256, 4), (4, 512, 4), (4, 512, 8), (8, 512, 8), (4, 1024, 8), (4, 1024, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than a row, the first one for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(gate):
    """gate / (1 + exp(-gate)), where exp(y) is exp2(y * log2(e)); of a large negative gate it is 0."""
    return gate / (1.0 + tl.exp2(gate * -1.4426950408889634))


@triton.jit
def corner_of(ptr, band, stride, local, cols):
    """Pointers to a tile of a matrix: the row `band`, the rows `local` after it, and the columns `cols`."""
    return ptr + band * stride + (local * stride + cols)


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
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    band = (pid // across).to(tl.int64) * ROWS
    local = tl.arange(0, ROWS)[:, None]
    cols = (pid % across) * COLS + tl.arange(0, COLS)[None, :]
    inside = (band + local < n_rows) & (cols < n_cols)
    gate = tl.load(corner_of(gate_ptr, band, stride_gate, local, cols), mask=inside, other=0.0)
    up = tl.load(corner_of(up_ptr, band, stride_up, local, cols), mask=inside, other=0.0)
    result = silu(gate.to(tl.float32)) * up.to(tl.float32)
    tl.store(
        corner_of(out_ptr, band, stride_out, local, cols), result.to(out_ptr.dtype.element_ty), mask=inside
    )


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    if n_rows == 0:
        return out
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

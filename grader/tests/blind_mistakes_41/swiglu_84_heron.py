# gpu-programming/triton-kernels/swiglu.py | corner | In `silu`, `tl.exp(tl.minimum(-x, 30.0))` clamps the exponent; it should be `tl.exp(-x)` without a clamp (inf is harmless). For gate below -30 the result is about -1e-11 * up in place of (nearly) 0: shows in fp32 and bf16 with large negative gates (values "huge"); fp16 rounds it to 0.
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl


def _tile(rows, cols, num_warps):
    """One candidate: a program owns rows x cols elements."""
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=num_warps)


# A thread has 8 to 32 neighbouring numbers of one row. The first one is for short rows.
CONFIGS = [
    _tile(8, 128, 4),
    _tile(4, 512, 4),
    _tile(1, 1024, 4),
    _tile(2, 1024, 4),
    _tile(1, 2048, 4),
    _tile(2, 2048, 8),
    _tile(1, 4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the matrix, or the narrowest one."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) of an fp32 block; the exponent is kept in a range where exp is finite."""
    return x / (1.0 + tl.exp(tl.minimum(-x, 30.0)))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out = silu(gate) * up; a program owns a tile of ROWS rows and COLS columns."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across) * COLS + tl.arange(0, COLS)
    rows, cols = rows[:, None], cols[None, :]
    inside = (rows < n_rows) & (cols < n_cols)

    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + rows * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

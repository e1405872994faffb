# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `sigmoid`, `tl.exp2(-LN2 * x)` multiplies by ln 2 = 0.693, where exp(-x) is exp2(-x * log2(e)), with log2(e) = 1 / ln 2 = 1.4427. The sigmoid is too flat: wrong in all cases and dtypes (of huge gates only the small ones).
"""SwiGLU by a fixed number of programs that share all tiles of the matrix among them."""

import torch
import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)  # natural logarithm of 2
PROGRAMS = 4096  # at most; about 30 for each multiprocessor of a large GPU

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) with the power of two of the hardware; 1 / inf is the 0 of a large negative x."""
    return 1.0 / (1.0 + tl.exp2(-LN2 * x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Tile t is block t % blocks of row t // blocks; program i takes the tiles i, i + programs, and so on."""
    blocks = tl.cdiv(n_cols, BLOCK)
    for tile in tl.range(tl.program_id(axis=0), n_rows * blocks, tl.num_programs(axis=0)):
        row = (tile // blocks).to(tl.int64)
        cols = (tile % blocks) * BLOCK + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
        result = gate * sigmoid(gate) * up
        tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        return (min(n_rows * triton.cdiv(n_cols, meta["BLOCK"]), PROGRAMS),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0),
    )  # fmt: skip
    return out

# gpu-programming/triton-kernels/swiglu.py | contract | swiglu: without out= the result is allocated by torch.empty_strided with rows padded to whole lines of 128 bytes, so for other row lengths the returned tensor is not contiguous; its values are right. It should be a new contiguous tensor, torch.empty((n_rows, n_cols), ...).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

LINE = 128  # bytes of a line of the cache

# block and warps: 8, 16, 8 and 16 numbers for each thread
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x), for fp32."""
    return x / (1.0 + tl.exp(-x))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up; program (i, j) owns block j of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    real = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=real, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=real, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=real)


def pitch(n_cols: int, itemsize: int) -> int:
    """Elements from one row to the next, so that each row begins on a line of its own."""
    step = LINE // itemsize
    return triton.cdiv(n_cols, step) * step


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        # Aligned rows: every store of 16 bytes stays whole.
        strides = (pitch(n_cols, gate.element_size()), 1)
        out = torch.empty_strided((n_rows, n_cols), strides, device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

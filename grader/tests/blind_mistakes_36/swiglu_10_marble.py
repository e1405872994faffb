# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In swiglu_kernel the factor gate is there twice: the helper swish(z) already returns z * sigmoid(z), and the kernel multiplies it by gate once more, g * swish(g) * u = gate**2 * sigmoid(gate) * up; it should be swish(g) * u. Wrong in every case (each element off by the factor gate; in fp16 some huge values become inf).
"""SwiGLU by tiles of two rows and some columns, so that a row of few columns still fills a program."""

import torch
import triton
import triton.language as tl


def _tile(block, num_warps):
    return triton.Config({"HEIGHT": 2, "BLOCK": block}, num_warps=num_warps)


CONFIGS = [_tile(512, 4), _tile(1024, 4), _tile(1024, 8), _tile(2048, 8), _tile(2048, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [config for config in configs if config.kwargs["BLOCK"] <= n_cols] or [configs[0]]


@triton.jit
def swish(z):
    """z times its sigmoid; exp of a large -z is inf, and the quotient 0."""
    return z / (1.0 + tl.exp(-z))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    HEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK columns of HEIGHT rows; tiles are counted along the rows first."""
    across = tl.cdiv(n_cols, BLOCK)
    down = tl.program_id(0) // across
    row = (down.to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT))[:, None]
    col = ((tl.program_id(0) % across) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (row < n_rows) & (col < n_cols)

    g = tl.load(gate_ptr + row * stride_gate + col, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + row * stride_up + col, mask=mask, other=0.0).to(tl.float32)
    y = g * swish(g) * u
    tl.store(out_ptr + row * stride_out + col, y.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, written to `out` where one is given, and to a new contiguous matrix otherwise."""
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape
    swiglu_kernel[
        lambda meta: (triton.cdiv(n_rows, meta["HEIGHT"]) * triton.cdiv(n_cols, meta["BLOCK"]),)
    ](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out

"""EXPECT PASS from elementwise_add: heuristics choose block and warps, and drop the mask."""

import torch
import triton
import triton.language as tl

# Elements of a block, by bytes of an element: 16 bytes a thread, 8 warps.
WIDTHS = {2: 4096, 4: 2048}


def _width(args):
    """A full block for long vectors; short ones get the next power of two."""
    return min(triton.next_power_of_2(args["n"]), WIDTHS.get(args["x_ptr"].element_size(), 1024))


@triton.heuristics(
    {
        "BLOCK": _width,
        "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
        "num_warps": lambda args: 8 if args["BLOCK"] >= 2048 else 4,
    }
)
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Program k has elements k * BLOCK and the BLOCK - 1 after it."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))
    else:
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        y = tl.load(y_ptr + offs, mask=mask, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"elementwise_add wants fp32, fp16 or bf16, not {x.dtype}")
    if x.dtype != y.dtype or x.shape != y.shape:
        raise ValueError(f"x is {x.dtype} {tuple(x.shape)}, but y is {y.dtype} {tuple(y.shape)}")
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
        elementwise_add_kernel[grid](x, y, out, n)
    return out

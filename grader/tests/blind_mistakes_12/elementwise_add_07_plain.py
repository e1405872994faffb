# labs/lab1_elementwise_add/elementwise_add.py | error | POLICY: the elements behind the last whole block are added by the host function with tensor operators (out[done:] = x[done:] + y[done:]); only a kernel may compute, so it must be a masked program; refused whatever n is
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Adds one block of exactly BLOCK elements."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = n // BLOCK
    if blocks > 0:
        elementwise_add_kernel[(blocks,)](x, y, out, BLOCK=BLOCK)
    # fewer than BLOCK elements are left, too few to be worth a launch
    done = blocks * BLOCK
    if done < n:
        out[done:] = x[done:] + y[done:]
    return out

"""EXPECT PASS from softmax_forward and softmax_backward and softmax: tuned, persistent."""

from typing import Any, Callable, Literal, Mapping, Optional

import torch
import triton
import triton.language as tl

Direction = Literal["forward", "backward"]

WIDEST: Mapping[Direction, int] = {"forward": 16384, "backward": 8192}
ROWS_IN_FLIGHT = 64  # programs for each multiprocessor; more rows than that are walked in a loop


def _configs() -> list[triton.Config]:
    return [triton.Config({}, num_warps=1 << i) for i in range(6)]


def keep_sensible(configs, named_args, **kwargs: Any):
    """From 4 to 32 elements a thread; the widest remaining if none is."""
    block = kwargs["BLOCK"]
    kept = [c for c in configs if 4 <= block // (32 * c.num_warps) <= 32]
    return kept if kept else configs[:1]


tuned: Callable = triton.autotune(
    configs=_configs(), key=["n_cols"], prune_configs_by={"early_config_prune": keep_sensible}
)


@tuned
@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x_row = x_ptr + tl.cast(row, tl.int64) * stride_x
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        cols = tl.arange(0, BLOCK)
        if ONE_BLOCK:
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            e = tl.exp(x - tl.max(x, axis=0))
            tl.store(y_row + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        else:
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                x = tl.load(x_row + start + cols, mask=cols < n_cols - start, other=-float("inf")).to(
                    tl.float32
                )
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d *= tl.exp(m - shift)
                d += tl.sum(tl.exp(x - shift), axis=0)
                m = m_new
            for start in range(0, n_cols, BLOCK):
                x = tl.load(x_row + start + cols, mask=cols < n_cols - start, other=-float("inf")).to(
                    tl.float32
                )
                y = tl.exp(x - m) / d
                tl.store(y_row + start + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols - start)


@tuned
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx,
    BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr,
):  # fmt: skip
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        dy_row = dy_ptr + tl.cast(row, tl.int64) * stride_dy
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        dx_row = dx_ptr + tl.cast(row, tl.int64) * stride_dx
        cols = tl.arange(0, BLOCK)
        if ONE_BLOCK:
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - tl.sum(y * dy, axis=0))
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        else:
            s = 0.0
            for start in range(0, n_cols, BLOCK):
                dy = tl.load(dy_row + start + cols, mask=cols < n_cols - start, other=0.0).to(tl.float32)
                y = tl.load(y_row + start + cols, mask=cols < n_cols - start, other=0.0).to(tl.float32)
                s += tl.sum(y * dy, axis=0)
            for start in range(0, n_cols, BLOCK):
                dy = tl.load(dy_row + start + cols, mask=cols < n_cols - start, other=0.0).to(tl.float32)
                y = tl.load(y_row + start + cols, mask=cols < n_cols - start, other=0.0).to(tl.float32)
                dx = y * (dy - s)
                tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols - start)


def _launch(kernel, direction: Direction, *tensors: torch.Tensor) -> None:
    n_rows, n_cols = tensors[0].shape
    if n_rows * n_cols == 0:
        return
    block = min(triton.next_power_of_2(n_cols), WIDEST[direction])
    if tensors[0].is_cuda:
        sms = torch.cuda.get_device_properties(tensors[0].device).multi_processor_count
        programs = min(n_rows, sms * ROWS_IN_FLIGHT)
    else:
        programs = min(n_rows, 4)
    kernel[(programs,)](
        *tensors,
        n_rows,
        n_cols,
        *(tensor.stride(0) for tensor in tensors),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
    )


def softmax_forward(x: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Softmax over the columns of each row."""
    out = torch.empty_like(x) if out is None else out
    _launch(online_softmax_kernel, "forward", x, out)
    return out


def softmax_backward(
    dy: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Gradient for the input of softmax_forward."""
    out = torch.empty_like(dy) if out is None else out
    _launch(softmax_backward_kernel, "backward", dy, y, out)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)

"""The peers of our kernels in `make bench`: rungs of a ladder, PyTorch, torch.compile, Liger, a copy."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch.nn.attention import SDPBackend, sdpa_kernel

from grader.measure.bench import ladder as bench_ladder
from grader.worker.worker import picked

Tensors = dict[str, torch.Tensor]
Call = Callable[[], tuple[torch.Tensor, ...]]

LN_EPS, RMS_EPS, ADD_RMS_EPS = 1e-5, 1e-6, 1e-5  # the defaults of our functions
DROPOUT_P = 0.5
LAYER_NORM_LINEAR = ("x", "gamma", "beta", "weight", "bias")
aten = torch.ops.aten


@dataclass(frozen=True)
class Peer:
    """One arm: `make` takes the tensors of a buffer set and returns a call, which returns its results."""

    name: str
    make: Callable[[Tensors], Call]
    chosen: Callable[[Mapping[str, int]], dict[str, str]] | None = None  # the algorithm chosen for a size


@functools.cache
def _compile(function):
    return torch.compile(function, dynamic=False)


def compiled(function, *takes: str) -> Peer:
    """Return a peer that runs torch.compile of a function of these tensors."""

    def make(s):
        fast, arguments = _compile(function), [s[key] for key in takes]
        return lambda: _tuple(fast(*arguments))

    return Peer("torch.compile", make)


def _tuple(results):
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def plain(name: str, function, *takes: str) -> Peer:
    """Return a peer that calls a function of these tensors, with one result or several."""
    return Peer(name, lambda s: lambda: _tuple(function(*(s[key] for key in takes))))


def ladder(function: str, takes: Sequence[str], gives: Sequence[str], **options) -> tuple[Peer, ...]:
    """Return a peer for each rung of lab 4's ladder, called as ours is; without its file one is missing."""
    return tuple(_rung(rung, function, takes, gives, options) for rung in bench_ladder.RUNGS)


def _rung(rung: str, function: str, takes: Sequence[str], gives: Sequence[str], options: Mapping) -> Peer:

    def make(s):
        call = getattr(bench_ladder.module_of(rung, function), function)
        arguments, results = [s[key] for key in takes], {key: s[key] for key in gives}

        def run():
            call(*arguments, **results, **options)
            return tuple(results.values())

        return run

    return Peer(rung, make, lambda _: picked(bench_ladder.module_of(rung, function)))


COPY = Peer("copy", lambda s: lambda: (s["copy_to"].copy_(s["copy_from"]),))


def liger(prepare: Callable[[Tensors], Call]) -> Peer:
    """Return a peer from Liger-Kernel; `prepare` imports it, so that a missing package is reported."""
    return Peer("Liger", prepare)


def liger_softmax(s):
    """Softmax, forward."""
    from liger_kernel.ops.softmax import _softmax_forward

    return lambda: _softmax_forward(s["x"])[:1]


def liger_softmax_backward(s):
    """Gradient of softmax: dx from dy and the saved result."""
    from liger_kernel.ops.softmax import _softmax_backward, calculate_settings

    settings = calculate_settings(s["y"].shape[1])
    return lambda: (_softmax_backward(s["dy"], s["y"], *settings, False),)


def liger_layer_norm(s):
    """LayerNorm, forward; it also stores the statistics of each row."""
    from liger_kernel.ops.layer_norm import layer_norm_forward

    return lambda: layer_norm_forward(s["x"], s["weight"], s["bias"], LN_EPS)[:1]


def liger_layer_norm_backward(s):
    """Gradients of LayerNorm: dx, dweight and dbias from saved statistics."""
    from liger_kernel.ops.layer_norm import layer_norm_backward

    mean, rstd = s["mean"].flatten(), s["rstd"].flatten()
    return lambda: layer_norm_backward(s["dy"], s["x"], s["weight"], s["bias"], mean, rstd)


def liger_rms_norm(s):
    """RMSNorm, forward; it also stores one factor for each row."""
    from liger_kernel.ops.rms_norm import rms_norm_forward

    return lambda: rms_norm_forward(s["x"], s["weight"], RMS_EPS, 0.0, "llama", None)[:1]


def liger_rms_norm_backward(s):
    """Gradients of RMSNorm: dx and dweight from the saved factors."""
    from liger_kernel.ops.rms_norm import _str_to_casting_mode, calculate_settings, rms_norm_backward

    # Not in place, which is the default: the gradient of one call would be the input of the next.
    settings = (0.0, _str_to_casting_mode["llama"], *calculate_settings(s["x"].shape[1]), False, None)
    rstd = s["rstd"].flatten()
    return lambda: rms_norm_backward(s["dy"], s["x"], s["weight"], rstd, *settings)


def softmax(x):
    """Softmax of each row."""
    return torch.softmax(x, -1)


def softmax_dx(dy, y):
    """Gradient of softmax, in a new tensor."""
    return aten._softmax_backward_data(dy, y, -1, dy.dtype)


def softmax_dx_out(s):
    """Gradient of softmax, into the given tensor."""
    keywords = {"grad_input": s["out"]}
    return lambda: (aten._softmax_backward_data.out(s["dy"], s["y"], -1, s["y"].dtype, **keywords),)


def layer_norm(x, weight, bias):
    """LayerNorm with our default eps."""
    return nnf.layer_norm(x, x.shape[1:], weight, bias, LN_EPS)


def layer_norm_gradients(dy, x, mean, rstd, weight, bias):
    """Gradients of LayerNorm: dx, dweight and dbias from saved statistics."""
    return aten.native_layer_norm_backward(dy, x, x.shape[1:], mean, rstd, weight, bias, [True, True, True])


def rms_norm(x, weight):
    """RMSNorm with our default eps."""
    return nnf.rms_norm(x, x.shape[1:], weight, RMS_EPS)


def rms_norm_gradients(dy, x, rstd, weight):
    """Gradients of RMSNorm: dx and dweight from the saved factors; in PyTorch for CUDA only."""
    return aten._fused_rms_norm_backward(dy, x, x.shape[1:], rstd, weight, [True, True])


def dropout(x):
    """Dropout in training mode; PyTorch also writes a mask of one byte for each element."""
    return nnf.dropout(x, DROPOUT_P, training=True)


def dropout_mistake(s, got):
    """Say what no dropout of x could return: values other than 0 and x / (1 - p), or an unlikely share."""
    kept = got != 0
    wrong = int(((got - s["x"] / (1 - DROPOUT_P)).abs() > 1e-2 * s["x"].abs())[kept].sum())
    wrong += int(got.isnan().sum())
    count, share = got.numel(), float(kept.double().mean())
    deviation = math.sqrt(DROPOUT_P * (1 - DROPOUT_P) / count)
    if wrong:
        return f"{wrong} of {count} values are neither 0 nor scaled"
    # Six standard deviations, plus 1e-4 for elements of x that are exactly 0.
    return f"kept {share:.4f} of the values" if abs(share - 1 + DROPOUT_P) > 6 * deviation + 1e-4 else ""


def layer_norm_linear(x, gamma, beta, weight, bias):
    """LayerNorm, then torch.nn.functional.linear: two kernels or more."""
    return nnf.linear(nnf.layer_norm(x, x.shape[1:], gamma, beta, LN_EPS), weight, bias)


def both_layouts(name, call) -> tuple[Peer, ...]:
    """Return peers for a product with B as it is and stored transposed; `call` takes a, b and all tensors."""
    return tuple(
        Peer(f"{name} {word}", lambda s, b=b: lambda: (call(s["a"], s[b], s),))
        for word, b in (("NN", "b"), ("NT", "b_nt"))
    )


def addmm_then_relu(a, b, s):
    """Matmul with bias, then ReLU in place: not fused."""
    return torch.relu_(torch.addmm(s["bias"], a, b, out=s["out"]))


def addmm_activation(a, b, s):
    """Matmul with bias and ReLU, fused by PyTorch."""
    return torch._addmm_activation(s["bias"], a, b, out=s["out"])


def addmm_relu(a, b, bias):
    """Matmul with bias, then ReLU, for torch.compile to fuse."""
    return torch.relu(torch.addmm(bias, a, b))


def swiglu(gate, up):
    """silu(gate) * up."""
    return nnf.silu(gate) * up


def add_rms_norm(x, residual, weight):
    """RMSNorm of a sum, and the sum."""
    total = x + residual
    return nnf.rms_norm(total, x.shape[1:], weight, ADD_RMS_EPS), total


def attention(*backends: SDPBackend):
    """Return PyTorch's causal attention, by one of these kernels or by the one that it chooses."""

    def of(q, k, v):
        with sdpa_kernel(list(backends)) if backends else contextlib.nullcontext():
            return nnf.scaled_dot_product_attention(q, k, v, is_causal=True)

    return of

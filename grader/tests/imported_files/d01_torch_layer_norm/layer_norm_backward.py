"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
from layer_norm import gradients, normalised


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    return gradients(dy, x, weight, eps)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward."""
    return normalised(x, weight, bias, eps)

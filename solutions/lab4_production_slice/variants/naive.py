"""EXPECT POLICY from fused_softmax_forward and layer_norm_forward and rms_norm_forward: calls of PyTorch.

The first rung for measurements: each function as a user of PyTorch writes it without the fused one. Each
call reads and writes whole matrices. Numbers are fp32 between the calls, because in 16 bits every call would
round once more.
"""

import torch


def given_or_new(y, out, dtype):
    """Return y in a dtype, written to `out` where one is given."""
    return y.to(dtype) if out is None else out.copy_(y)


def fused_softmax_forward(x, *, out=None):
    """Softmax of each row of x."""
    rows = x.float()
    top = rows.max(dim=1, keepdim=True).values
    terms = torch.exp(rows - top)
    return given_or_new(terms / terms.sum(dim=1, keepdim=True), out, x.dtype)


def fused_softmax_backward(dy, y, *, out=None):
    """Gradient of softmax for its input, from dy and the result y."""
    products = dy.float() * y.float()
    product = products.sum(dim=1, keepdim=True)
    return given_or_new(products - y.float() * product, out, dy.dtype)


def fused_softmax(x):
    """Differentiable fused_softmax_forward."""
    return fused_softmax_forward(x)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None):
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    rows = x.float()
    centred = rows - rows.mean(dim=1, keepdim=True)
    variance = centred.square().mean(dim=1, keepdim=True)
    normalised = centred * torch.rsqrt(variance + eps)
    return given_or_new(normalised * weight + bias, out, x.dtype)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias."""
    rows = x.float()
    gradient = dy.float()
    centred = rows - rows.mean(dim=1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + eps)
    normalised = centred * rstd
    g = gradient * weight
    mean_g = g.mean(dim=1, keepdim=True)
    mean_gn = (g * normalised).mean(dim=1, keepdim=True)
    dx = given_or_new(rstd * (g - mean_g - normalised * mean_gn), dx, x.dtype)
    dweight = given_or_new((gradient * normalised).sum(dim=0), dweight, weight.dtype)
    dbias = given_or_new(gradient.sum(dim=0), dbias, weight.dtype)
    return dx, dweight, dbias


def layer_norm(x, weight, bias, eps: float = 1e-5):
    """Differentiable layer_norm_forward."""
    return layer_norm_forward(x, weight, bias, eps=eps)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None):
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    rows = x.float()
    mean_square = rows.square().mean(dim=1, keepdim=True)
    normalised = rows * torch.rsqrt(mean_square + eps)
    return given_or_new(normalised * weight, out, x.dtype)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight."""
    rows = x.float()
    gradient = dy.float()
    rrms = torch.rsqrt(rows.square().mean(dim=1, keepdim=True) + eps)
    normalised = rows * rrms
    g = gradient * weight
    mean_gn = (g * normalised).mean(dim=1, keepdim=True)
    dx = given_or_new(rrms * (g - normalised * mean_gn), dx, x.dtype)
    dweight = given_or_new((gradient * normalised).sum(dim=0), dweight, weight.dtype)
    return dx, dweight


def rms_norm(x, weight, eps: float = 1e-6):
    """Differentiable rms_norm_forward."""
    return rms_norm_forward(x, weight, eps=eps)


def dropout_forward(x, *, p: float, seed: int, out=None):
    """x / (1 - p) with probability 1 - p and 0 with probability p; PyTorch's own generator has the seed."""
    kept = torch.rand(x.shape, device=x.device) >= p
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return given_or_new(x * kept * scale, out, x.dtype)


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True):
    """Differentiable dropout_forward, which stores its mask; x itself where not `training`."""
    return dropout_forward(x, p=p, seed=seed) if training else x


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None):
    """layer_norm(x) @ weight.T + bias, with the normalised rows in memory."""
    return given_or_new(layer_norm_forward(x, gamma, beta, eps=eps) @ weight.t() + bias, out, x.dtype)


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5):
    """Differentiable layer_norm_linear_forward."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)

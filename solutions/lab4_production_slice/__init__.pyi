from torch import Tensor

def fused_softmax_forward(x: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fused_softmax_backward(dy: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fused_softmax(x: Tensor) -> Tensor: ...
def layer_norm_forward(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5, out: Tensor | None = None
) -> Tensor: ...
def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-5,
    dx: Tensor | None = None,
    dweight: Tensor | None = None,
    dbias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor: ...
def rms_norm_forward(
    x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None
) -> Tensor: ...
def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-6,
    dx: Tensor | None = None,
    dweight: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor: ...
def dropout_forward(x: Tensor, *, p: float, seed: int, out: Tensor | None = None) -> Tensor: ...
def dropout_backward(dy: Tensor, *, p: float, seed: int, out: Tensor | None = None) -> Tensor: ...
def dropout(x: Tensor, *, p: float = 0.5, seed: int, training: bool = True) -> Tensor: ...
def layer_norm_linear_forward(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    eps: float = 1e-5,
    out: Tensor | None = None,
) -> Tensor: ...
def layer_norm_linear(
    x: Tensor, gamma: Tensor, beta: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor: ...

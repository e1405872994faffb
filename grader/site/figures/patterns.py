"""The patterns of the course's kernels: their operations in the bench, and their library calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One pattern: operations of the bench, and the library call, which torch.compile gets too."""

    title: str
    limit: str  # what a good kernel saves
    ops: tuple[str, ...]  # names in the records, for Triton and for CUDA
    call: str  # one expression; torch and nnf are imported


PATTERNS = (
    Pattern(
        "Elementwise, one operation",
        "It only moves bytes, each once, and every way moves the same.",
        ("elementwise_add", "vector_add"),
        "x + y",
    ),
    Pattern(
        "Elementwise chain: SwiGLU",
        "One kernel for the chain saves writing and reading what lies between its operations.",
        ("swiglu",),
        "nnf.silu(gate) * up",
    ),
    Pattern(
        "Random numbers: dropout",
        "The mask need not be stored where it can be drawn again, which a library cannot assume.",
        ("dropout_forward",),
        "nnf.dropout(x, p)",
    ),
    Pattern(
        "Reduction: sum",
        "Each byte is read once; joining what the blocks found is the difficult part.",
        ("reduce_sum",),
        "x.sum()",
    ),
    Pattern(
        "Row softmax",
        "A row that stays on the chip is read once instead of two or three times.",
        ("softmax_forward", "fused_softmax_forward"),
        "torch.softmax(x, -1)",
    ),
    Pattern(
        "LayerNorm",
        "A row that stays on the chip is read once; the statistics are two sums.",
        ("layer_norm_forward",),
        "nnf.layer_norm(x, x.shape[1:], weight, bias)",
    ),
    Pattern(
        "LayerNorm, gradients",
        "One kernel can give the gradient of the rows and parts of those of the weights, and read all once.",
        ("layer_norm_backward",),
        "torch.autograd.grad(y, (x, weight, bias), dy)",
    ),
    Pattern(
        "RMSNorm",
        "As for LayerNorm, with one sum.",
        ("rms_norm_forward",),
        "nnf.rms_norm(x, x.shape[1:], weight)",
    ),
    Pattern(
        "Residual + RMSNorm",
        "The sum is written once and normalised while it is on the chip.",
        ("add_rms_norm",),
        "nnf.rms_norm(x + residual, x.shape[1:], weight)",
    ),
    Pattern(
        "Matrix product",
        "Arithmetic decides; libraries hold years of tuning, and to equal them is all one can hope for.",
        ("matmul", "cuda_matmul"),
        "a @ b",
    ),
    Pattern(
        "Matrix product + bias + ReLU",
        "The epilogue saves one pass over the result, little beside the product itself.",
        ("matmul_bias_relu",),
        "torch.relu(torch.addmm(bias, a, b))",
    ),
    Pattern(
        "LayerNorm + Linear",
        "A norm behind the product needs no normalised matrix in memory; it saves most at a short k.",
        ("layer_norm_linear_forward",),
        "nnf.linear(nnf.layer_norm(x, x.shape[1:], gamma, beta), weight, bias)",
    ),
    Pattern(
        "Attention, causal",
        "The scores never leave the chip; libraries have kernels for it that use all of the hardware.",
        ("attention",),
        "nnf.scaled_dot_product_attention(q, k, v, is_causal=True)",
    ),
)


def compiled(pattern: Pattern) -> str:
    """Return the code that compiles the call."""
    return f"@torch.compile\ndef fused(*tensors):\n    return {pattern.call}"

"""The production slice as a library: `from solutions.lab4_production_slice import layer_norm`.

Each function says in its docstring what it takes, gives and computes; __init__.pyi has the types.
"""

import sys
from pathlib import Path

# Its files import each other by their plain names, as a student's file does.
sys.path.append(str(Path(__file__).parent))

from dropout import dropout, dropout_backward, dropout_forward
from layer_norm import layer_norm_forward
from layer_norm_backward import layer_norm, layer_norm_backward
from layer_norm_linear import layer_norm_linear_forward
from layer_norm_linear_backward import layer_norm_linear
from rms_norm import rms_norm_forward
from rms_norm_backward import rms_norm, rms_norm_backward
from softmax import fused_softmax, fused_softmax_backward, fused_softmax_forward

__all__ = [
    "dropout",
    "dropout_backward",
    "dropout_forward",
    "fused_softmax",
    "fused_softmax_backward",
    "fused_softmax_forward",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "layer_norm_linear",
    "layer_norm_linear_forward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
]

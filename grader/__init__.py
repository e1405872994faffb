"""Grade Triton kernels: a judge that owns every buffer and the clock, workers that only compute."""

__version__ = "0.1.0"

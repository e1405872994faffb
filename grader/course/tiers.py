"""What a run can grade on, and the GPU that code is compiled for where none is named."""

from __future__ import annotations

TIERS = ("cpu", "codegen", "gpu")
AUTO = "auto"  # asks for the GPU where there is one, else for the CPU
DEFAULT_ARCH = 90  # compute capability 9.0, sm_90

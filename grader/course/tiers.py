"""The tiers of a run, and the default GPU to compile for."""

from __future__ import annotations

TIERS = ("cpu", "codegen", "gpu")
AUTO = "auto"  # gpu if there is a GPU, else cpu
DEFAULT_ARCH = 90  # compute capability 9.0, sm_90

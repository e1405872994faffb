"""Names for what the functions of a lab take and give; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch

Params: TypeAlias = Mapping[str, int | float | str]
Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape | float]  # of the inputs by name; a number stands for itself
Inputs: TypeAlias = "Mapping[str, torch.Tensor | float]"
Tensors: TypeAlias = "Sequence[torch.Tensor]"


class Rng(Protocol):
    """What a lab draws its inputs from; all tensors are fp32."""

    @property
    def device(self) -> str:
        """Where the tensors lie."""

    def normal(self, *shape: int) -> torch.Tensor:
        """N(0, 1)."""

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform in [0, 1)."""

    def integers(self, low: int, high: int, /, *shape: int) -> torch.Tensor:
        """Whole numbers from low to high, both included."""

    def whole(self, bound: int, /) -> int:
        """One whole number from 0 to bound - 1."""

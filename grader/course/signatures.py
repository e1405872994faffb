"""Type names for the arguments and results of a lab's functions; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch

Params: TypeAlias = Mapping[str, int | float | str]
Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape | float]  # of the inputs by name; a number is given as its value
Inputs: TypeAlias = "Mapping[str, torch.Tensor | float]"
Tensors: TypeAlias = "Sequence[torch.Tensor]"


class Rng(Protocol):
    """The random source that a lab draws its inputs from; all tensors are fp32."""

    @property
    def device(self) -> str:
        """The device of the tensors."""

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Draw from N(mean, std**2)."""

    def uniform(self, *shape: int) -> torch.Tensor:
        """Draw uniformly from [0, 1)."""

    def integers(self, low: int, high: int, /, *shape: int) -> torch.Tensor:
        """Whole numbers from low to high, both included."""

    def whole(self, bound: int, /) -> int:
        """Draw one whole number from 0 to bound - 1."""

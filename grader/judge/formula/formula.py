"""A formula of some of the values that a reference computes, and whether an output follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.judge.formula.terms import Term, enclosed

CLOSE = 5e-4  # relative error of an element that follows a formula, in fp32
NOISE = 1e-5  # of the largest element, which is added: where terms cancel, digits are lost
One = Callable[[torch.Tensor], torch.Tensor]
Two = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Formula:
    """A formula of some of the terms, which can be computed again from the terms of other inputs."""

    text: str
    parts: tuple[int, ...]  # the terms, by number
    compute: Callable[[Sequence[torch.Tensor]], torch.Tensor]

    def of(self, terms: Sequence[Term], shape: torch.Size) -> torch.Tensor:
        """Return its values, in the shape of the output."""
        return self.compute([terms[part].value for part in self.parts]).expand(shape)

    def inside(self, words: str, function: One) -> Formula:
        """Return a function of this formula."""
        text = self.text if words.endswith(")") else enclosed(self.text)
        return Formula(words.format(text), self.parts, lambda values: function(self.compute(values)))

    def joined(self, sign: str, operate: Two, other: Formula) -> Formula:
        """Return this formula, an operator, and another one."""
        split = len(self.parts)
        return Formula(
            f"{enclosed(self.text)} {sign} {enclosed(other.text)}",
            (*self.parts, *other.parts),
            lambda values: operate(self.compute(values[:split]), other.compute(values[split:])),
        )

    def times(self, factor: float) -> Formula:
        """Return this formula with a factor; one over a whole number is written as a quotient."""
        whole = round(1.0 / factor)
        if abs(whole) > 1 and abs(whole * factor - 1.0) < CLOSE:
            text = f"{enclosed(self.text)} / {whole}"
        else:
            text = f"{factor:.3g} * {enclosed(self.text)}"
        return Formula(text, self.parts, lambda values: factor * self.compute(values))


def follows(got: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return whether `got` are these values but for rounding, for each row of values."""
    near = CLOSE * got.abs() + NOISE * got.abs().max()
    return ((values - got).abs() <= near).all(dim=-1)

"""The judge's half of the exchange of inputs: what host code sees, and what is graded.

See grader/worker/exchange.py for the design.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.course.signatures import Inputs
from grader.judge.inputs import fill, same_bits
from grader.worker.protocol import ProtocolError
from grader.worker.shared_memory import TORCH_DTYPES, Arena, Buffer

WORD = 8  # bytes that are compared at once; guard bands are longer


class Exchange:
    """The two contents of the inputs of one call; begins shut, with the decoys in the lent memory.

    `changed` names inputs that were written to: by host code while shut, by a kernel while open.
    """

    def __init__(self, arena: Arena, buffers: Sequence[Buffer], graded: Inputs, decoys: Inputs):
        pieces = [piece for buffer in buffers for piece in buffer.pieces if piece.tensor.span]
        self._names = [piece.name for piece in pieces]
        self._lent = [_span(arena, piece) for piece in pieces]
        fill(arena, buffers, graded)
        self._graded = [one.clone() for one in self._lent]
        fill(arena, buffers, decoys)
        self._decoys = [one.clone() for one in self._lent]
        self._is_open = False
        self.changed: list[str] = []

    def open(self) -> None:
        """Write what is graded; ProtocolError if it is there already."""
        if self._is_open:
            raise ProtocolError("the inputs were asked for twice")
        self._write(self._decoys, self._graded)
        self._is_open = True

    def shut(self) -> None:
        """Write the decoys; ProtocolError if they are there already."""
        if not self._is_open:
            raise ProtocolError("the decoys were asked for twice")
        self._write(self._graded, self._decoys)
        self._is_open = False

    def end(self) -> None:
        """Leave the decoys in the lent memory, whatever the worker asked for last."""
        if self._is_open:
            self.shut()

    def _write(self, old: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
        for name, lent, before, after in zip(self._names, self._lent, old, new, strict=True):
            if not same_bits(lent, before) and name not in self.changed:
                self.changed.append(name)
            lent.copy_(after)


def _span(arena: Arena, buffer: Buffer) -> torch.Tensor:
    """Return the bytes of a tensor from its first element to its last, as words."""
    size = buffer.tensor.span * TORCH_DTYPES[buffer.tensor.dtype].itemsize
    return arena.bytes(buffer.tensor.offset, buffer.tensor.offset + -(-size // WORD) * WORD).view(torch.int64)

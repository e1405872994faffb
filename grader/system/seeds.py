"""The seed of a run: one number, of which a worker learns a part that says nothing about the rest."""

from __future__ import annotations

import secrets

SECRET_BITS = 128  # of inputs and poison; all of them can be searched for where there are 32
TUNING_BITS = 32  # above them: the order in which autotuned kernels try their configs
BYTES = (SECRET_BITS + TUNING_BITS) // 8


def drawn() -> int:
    """Return a seed of 160 random bits; any other number, as one that a person has typed, is one, too."""
    return secrets.randbits(8 * BYTES)


def for_a_worker(seed: int) -> int:
    """Return the bits that a worker may know, 0 for a seed of at most 128 bits.

    They are drawn independently of the other bits, so that no search leads from them to those.
    """
    return (seed >> SECRET_BITS) % 2**TUNING_BITS

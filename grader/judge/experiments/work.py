"""How much the calls of an experiment may cost, in units that do not depend on what else a machine does."""

from __future__ import annotations

from grader.worker.witness.record import Witnessed

MOST = 2000  # units of one experiment with an exercise: a few seconds
OF_A_CALL = 8  # whatever it does
ACCESSES, LANES = 3, 4000  # loads and stores, and their lanes, of one unit


def work(seen: Witnessed) -> int:
    """Return the work of a call, as its loads and stores show it."""
    return OF_A_CALL + seen.accesses // ACCESSES + seen.lanes // LANES

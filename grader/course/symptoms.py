"""Names for the symptoms of mistakes: the common ones, and the base class for a lab's; imports no torch."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable


class Symptom(str, enum.Enum):
    """Symptoms that the grader recognises in any exercise."""

    __str__ = str.__str__  # the value, on every version of Python

    # Elements that were never written
    NOTHING_WRITTEN = "nothing written"
    TAIL_UNWRITTEN = "tail unwritten"
    ROWS_UNWRITTEN = "rows unwritten"
    PART_UNWRITTEN = "part unwritten"
    # Memory outside a tensor
    OUT_OF_BOUNDS_WRITE = "out of bounds write"
    PADDED_WRITE = "padded write"
    OUT_OF_BOUNDS_READ = "out of bounds read"
    UNMASKED_READ = "unmasked read"
    NO_MASK = "no mask"
    # Wrong values, by their place
    TAIL_WRONG = "tail wrong"
    LATER_BLOCKS_WRONG = "later blocks wrong"
    FIRST_BLOCKS_WRONG = "first blocks wrong"
    LATER_ROWS_WRONG = "later rows wrong"
    LAST_COLUMNS_WRONG = "last columns wrong"
    LAST_ROWS_WRONG = "last rows wrong"
    # Wrong values, by their kind
    NOT_FINITE = "not finite"
    ALL_ZERO = "all zero"
    STALE = "stale"
    FIRST_CALL = "first call"
    PRECISION = "precision"
    SCALED = "scaled"
    GRADIENT = "gradient"
    WRONG = "wrong"
    # How the call went
    MUTATED = "mutated"
    NONDETERMINISTIC = "nondeterministic"
    RACE = "race"
    OTHER_CONFIG = "other config"
    OTHER_DTYPE = "other dtype"
    FOREIGN_KERNEL = "foreign kernel"
    HOST_READ = "host read"
    HOST_WAIT = "host wait"
    RETURNS_NOTHING = "nothing returned"
    RETURNS_ANOTHER = "something else returned"
    RETURNED_ORDER = "returned order"
    RETURNS_A_COPY = "copy returned"
    RETURNED_KIND = "returned kind"
    # Right in one layout, wrong in another
    OFFSETS_WRAP = "offsets wrap"
    DY_LAYOUT = "dy layout"
    SLOW = "slow"
    # Errors
    POWER_OF_TWO = "power of two"
    DIVISION_BY_ZERO = "division by zero"
    FLAT_VIEW = "flat view"
    NO_GRADIENT_FUNCTION = "no gradient function"
    SHARED_MEMORY = "shared memory"
    # Generated code
    NO_TENSOR_CORES = "no tensor cores"
    SPILLS = "spills"


class LabSymptom(str, enum.Enum):
    """Base class for symptoms that only one lab's exercises recognise; lab.py lists them as members."""

    __str__ = str.__str__


AnySymptom = Symptom | LabSymptom


def checked_symptom(found: object, source: str) -> AnySymptom:
    """Return `found` if it is a symptom; otherwise ValueError, whose message begins with `source`."""
    if isinstance(found, AnySymptom):
        return found
    near = difflib.get_close_matches(str(found), [one.value for one in Symptom], 1)
    hint = f"; did you mean Symptom.{Symptom(near[0]).name}?" if near else ""
    raise ValueError(f"{source}: {found!r} is neither a Symptom nor a LabSymptom{hint}")


def without_cause(causes: Iterable[AnySymptom]) -> list[LabSymptom]:
    """Return the members of a lab's symptom enumerations that `causes` lacks, in their order."""
    causes = list(causes)
    own = dict.fromkeys(type(one) for one in causes if isinstance(one, LabSymptom))
    return [one for kind in own for one in kind if one not in causes]

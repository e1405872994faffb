"""The progress message of a run to another process."""

from __future__ import annotations

from pydantic import BaseModel


class RunState(BaseModel):
    """Number of items, number of items done, a description of the current step, and what was found so far."""

    items: int = 0
    done: int = 0
    words: str = ""
    found: tuple[
        str, ...
    ] = ()  # facts of each exercise's first failure, then causes; each of 1 or more lines

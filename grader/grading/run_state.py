"""The progress message of a run to another process."""

from __future__ import annotations

from pydantic import BaseModel


class RunState(BaseModel):
    """Number of items, number of items done, and a description of the current step."""

    items: int = 0
    done: int = 0
    words: str = ""

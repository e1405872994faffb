"""How far a run is, as it tells another process."""

from __future__ import annotations

from pydantic import BaseModel


class RunState(BaseModel):
    """Items in all and done, and in words what the run is at."""

    items: int = 0
    done: int = 0
    words: str = ""

"""Use parts of torch that are written in Python without importing its compiler."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator

import torch

DYNAMO = "torch._dynamo"


@contextlib.contextmanager
def without_dynamo() -> Iterator[None]:
    """Stand in for torch._dynamo, which torch's Python functions import only to leave themselves uncompiled.

    The import takes a second or two, makes a cache folder, and is not safe beside imports of another thread.
    """
    if DYNAMO in sys.modules:
        yield
        return
    stand_in = types.ModuleType(DYNAMO)
    stand_in.disable = _unchanged  # type: ignore[attr-defined]
    sys.modules[DYNAMO] = torch._dynamo = stand_in
    try:
        yield
    finally:
        del sys.modules[DYNAMO], torch._dynamo


def _unchanged(function: Callable[..., object], *_: object, **__: object) -> Callable[..., object]:
    return function

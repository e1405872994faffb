"""Use parts of torch that are written in Python without importing its compiler."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator

import torch

DYNAMO = "torch._dynamo"
_LOCK = threading.Lock()
_INSIDE: list[int] = []  # the threads that need the stand-in


@contextlib.contextmanager
def without_dynamo() -> Iterator[None]:
    """Stand in for torch._dynamo, which torch's Python functions import only to leave themselves uncompiled.

    The import takes a second or two, makes a cache folder, and is not safe beside imports of another thread.
    Several threads may be in here: the stand-in stays until the last has left.
    """
    with _LOCK:
        if not _INSIDE and DYNAMO not in sys.modules:
            stand_in = types.ModuleType(DYNAMO)
            stand_in.disable = _unchanged  # type: ignore[attr-defined]
            stand_in.is_stand_in = True  # type: ignore[attr-defined]
            sys.modules[DYNAMO] = torch._dynamo = stand_in
        _INSIDE.append(threading.get_ident())
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE.remove(threading.get_ident())
            if not _INSIDE and hasattr(sys.modules[DYNAMO], "is_stand_in"):
                del sys.modules[DYNAMO], torch._dynamo


def _unchanged(function: Callable[..., object], *_: object, **__: object) -> Callable[..., object]:
    return function

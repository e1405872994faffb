"""Call Python functions in processes of their own, started anew or forked."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def call_apart(function: Callable[..., T], *arguments: object) -> T:
    """What a function returns in a new Python process; raises what it raises."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def fork_calls(function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> None:
    """Call a function in forks of this process, all at once, and wait; how they end does not matter."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=arguments) for arguments in calls]
    for one in processes:
        one.start()
    for one in processes:
        one.join()

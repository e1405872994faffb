"""Call Python functions in separate processes, spawned or forked."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def call_apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a new Python process; return its result, or raise its exception."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def fork_calls(function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> None:
    """Call a function in parallel forks of this process, and wait for all; their exit codes are ignored."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=arguments) for arguments in calls]
    for one in processes:
        one.start()
    for one in processes:
        one.join()

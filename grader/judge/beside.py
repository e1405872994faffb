"""Grade the last cases of a file on a second worker, while the first ones run: two cores do more than one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from grader.course.items import CaseItem
from grader.results.outcome import Outcome

POLL_S = 0.05  # between two looks whether what comes first is done
FEWEST = 8  # cases that are left, for which a second worker is worth its start


class Beside:
    """Cases that another thread grades, from the last one on; `take` says which of them it has begun.

    No case is graded twice, and what is found does not depend on which thread grades it.
    """

    def __init__(self) -> None:
        self._lock, self._pool = threading.Lock(), ThreadPoolExecutor(1)
        self._left: list[CaseItem] = []
        self._begun: dict[tuple[Path, str], Future[Outcome]] = {}
        self._kill: Callable[[], None] = lambda: None

    def begin(
        self,
        items: Sequence[CaseItem],
        grade: Callable[[CaseItem], Outcome],
        kill: Callable[[], None],
        first: Sequence[Future[Any]] = (),
    ) -> None:
        """Begin to `grade` items, the last one first, when what comes `first` is done.

        `kill` ends the worker that does it.
        """
        with self._lock:
            self._left = [*items]
            self._kill = kill
        self._pool.submit(self._run, grade, first)

    def take(self, item: CaseItem) -> Future[Outcome] | None:
        """Return the outcome of an item that was begun here, when it is there; None if it was not.

        Then it will not be begun: it is the caller's.
        """
        with self._lock:
            self._left = [one for one in self._left if _place(one) != _place(item)]
            return self._begun.pop(_place(item), None)

    def _run(self, grade: Callable[[CaseItem], Outcome], first: Sequence[Future[Any]]) -> None:
        while self._left and wait(first, POLL_S).not_done:
            pass
        while True:
            with self._lock:
                if not self._left:
                    return
                item = self._left.pop()
                future = self._begun[_place(item)] = Future[Outcome]()
            try:
                future.set_result(grade(item))
            except Exception as error:  # raised where the item is asked for
                future.set_exception(error)

    def close(self) -> None:
        """Begin nothing more, and end what runs."""
        with self._lock:
            self._left = []
        self._kill()
        self._pool.shutdown()


def _place(item: CaseItem) -> tuple[Path, str]:
    return item.entry.folder, item.id

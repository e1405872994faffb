"""The failures of a run as text, each message once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.report.terminal import alike, details_of, word
from grader.results.models import ItemResult


class Told:
    """The messages that a report has told already.

    A file that ends while it is imported gives all items of all of its exercises the same message.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], str] = {}

    def lines(self, items: Sequence[ItemResult], folder: str, file: str, place: str) -> Iterator[str]:
        """Yield the lines about failed items, told at `place`; of a message told before, only its place."""
        for first, *others in alike(items, folder, file):
            details = tuple(details_of(first, folder, file))
            names = [item.name for item in others]
            yield f"{word(first)}  {first.name}"
            above = self._first.setdefault((folder, file, word(first), *details), place) if details else place
            if above == place:
                yield from details
                label = "the same"
            else:
                label = f"the same as {above}"
            if names or above != place:
                yield f"    {label:<13} {', '.join(names)}".rstrip()

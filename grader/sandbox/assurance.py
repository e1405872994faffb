"""Assurance levels: how well a submission is confined, from what a probe saw refused on this machine."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox.probe import NEEDED, Findings


@dataclass(frozen=True)
class Assurance:
    """L1: a separate process. L2: it has a user of its own, and cannot reach anything in NEEDED."""

    level: int
    missing: tuple[str, ...]  # what the next level needs, in words
    refused: tuple[str, ...] = ()  # the kinds of attempts that the probe saw refused

    def without(self, what: str) -> Assurance:
        """Return L1, because `what` is missing as well."""
        return Assurance(1, (what, *(self.missing if self.level == 1 else ())), self.refused)

    @property
    def words(self) -> str:
        """Return the level for a report: `L2`, or `L1; for L2: no Landlock in this kernel`."""
        return f"L{self.level}" + (
            f"; for L{self.level + 1}: {', '.join(self.missing)}" if self.missing else ""
        )


def assess(findings: Findings) -> Assurance:
    """Derive the level from a probe's findings."""
    reached = [name for name in NEEDED if name not in findings.refused]
    why = [reason for reason in (findings.no_files, findings.no_calls) if reason]
    if findings.no_user:
        why.append(f"a user of its own for each worker ({findings.no_user})")
    if not reached and not why:
        missing = ("a container of its own, without network, for each submission",)
        return Assurance(2, missing, findings.refused)
    tried = {one.partition(" (")[0]: one for one in findings.reached}
    within = (f"within reach: {tried.get(name, name)}" for name in reached)
    return Assurance(1, (*why, *within), findings.refused)


def throwaway_user() -> int:
    """Return an unused user id, random so that two graders take different ones; 0 if there is none."""
    if os.geteuid() != 0:
        return 0
    try:
        first, _, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    except (OSError, ValueError):
        return 0
    if first != 0 or count <= 65_000:
        return 0
    low, high = (2_000_000_000, 2_100_000_000) if count > 2_100_000_000 else (count // 2, count - 1)
    return random.SystemRandom().randrange(low, high)

"""The late policy of a course: due dates, grace period, tokens, cost per day, extensions. A TOML file:

timezone = "Europe/Vienna"
grace_minutes = 15
tokens = 3                # free late days of each student, for all labs together
percent_per_day = 10
most_percent = 50         # maximum cost of being late
most_days = 7             # no points after more days, counted after tokens

[due]                     # by lab, as in --lab
1 = 2026-10-05 23:59:00
capstone = 2026-12-11 18:00:00

[extensions.ada]          # days, or another date; "all" is every lab
1 = 2

[spent]                   # tokens used in another class run
ada = 1

[more_tokens]             # tokens of one student beyond those of all
bob = 2

[excused]                 # labs that do not count for a student
cyd = ["1", "capstone"]
"""

from __future__ import annotations

import datetime
import zoneinfo
from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, field_validator

from grader.system.files import read_toml

UTC = datetime.timezone.utc
DAY = datetime.timedelta(days=1)
EVERY = "all"  # in place of a lab: every lab of the course


class LateError(Exception):
    """The late policy cannot be used; the message names the field."""


class LatePolicy(BaseModel):
    """Due dates and the cost of missing them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timezone: str = "UTC"
    grace_minutes: float = Field(0, ge=0)
    tokens: NonNegativeInt = 0
    percent_per_day: float = Field(0, ge=0, le=100)
    most_percent: float = Field(100, ge=0, le=100)
    most_days: NonNegativeInt | None = None
    due: dict[str, datetime.datetime] = {}
    extensions: dict[str, dict[str, NonNegativeInt | datetime.datetime]] = {}
    spent: dict[str, NonNegativeInt] = {}
    more_tokens: dict[str, NonNegativeInt] = {}
    excused: dict[str, list[str]] = {}

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{name} is not a known time zone, such as Europe/Vienna") from None
        return name

    @field_validator("due", mode="before")
    @classmethod
    def _dates(cls, due):
        # pydantic would read a number as seconds since 1970.
        if isinstance(due, dict) and any(isinstance(moment, (int, float)) for moment in due.values()):
            raise ValueError("write a due date as 2026-10-05 23:59:00")
        return due

    def due_of(self, student: str, lab: str) -> datetime.datetime | None:
        """Return the due date of a student's lab with extensions, in local time; None if it has no due date.

        A date in the file that has a UTC offset is converted to that time zone.
        """
        due = self.due.get(lab)
        own = self.extensions.get(student, {})
        more = own.get(lab, own.get(EVERY, 0))
        if isinstance(more, datetime.datetime):
            return self._local(more)
        return None if due is None else self._local(due) + more * DAY

    def _local(self, moment: datetime.datetime) -> datetime.datetime:
        zone = zoneinfo.ZoneInfo(self.timezone)
        return (moment.astimezone(zone) if moment.tzinfo else moment).replace(tzinfo=None)

    def ends(self, due: datetime.datetime, days: int) -> datetime.datetime:
        """Return the last moment, in UTC, at which a submission is at most `days` days late.

        A late day ends at the due time on the course's local clock, so a day with a clock change has 23 or
        25 hours. If a local time occurs twice or not at all, the later moment counts, in the student's
        favour.
        """
        local = (due + days * DAY).replace(tzinfo=zoneinfo.ZoneInfo(self.timezone))
        moment = max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        return moment + datetime.timedelta(minutes=self.grace_minutes)

    def days_late(self, student: str, lab: str, handed_in: datetime.datetime) -> int:
        """Return the late days begun, each with its grace period; 0 if the lab has no due date."""
        due = self.due_of(student, lab)
        if due is None:
            return 0
        days = max(0, (handed_in - self.ends(due, 0)) // DAY - 1)  # a lower bound, also with a clock change
        while handed_in > self.ends(due, days):
            days += 1
        return days

    def lost(self, days: int) -> Fraction:
        """Return the share of the points that is lost after `days` late days, not counting tokens."""
        if self.most_days is not None and days > self.most_days:
            return Fraction(1)
        percent = min(Fraction(str(self.percent_per_day)) * days, Fraction(str(self.most_percent)))
        return percent / 100

    def tokens_of(self, student: str) -> int:
        """Return the tokens that a student has for this class run."""
        return max(0, self.tokens + self.more_tokens.get(student, 0) - self.spent.get(student, 0))

    def is_excused(self, student: str, lab: str) -> bool:
        """Whether the lab does not count for this student."""
        return not {lab, EVERY}.isdisjoint(self.excused.get(student, ()))


def read(path: Path) -> LatePolicy:
    """Read a late policy. Raises LateError if it cannot be used."""
    try:
        return read_toml(path, LatePolicy)
    except ValueError as error:
        raise LateError(str(error)) from None


def unknown_names(policy: LatePolicy, students: set[str], labs: set[str]) -> list[str]:
    """Return a message for each name in the policy that is no student or no lab of the run."""
    known = [*policy.extensions, *policy.spent, *policy.more_tokens, *policy.excused]
    found = [f"no student {name} in this run" for name in dict.fromkeys(known) if name not in students]
    by_student = (*policy.extensions.values(), *policy.excused.values())
    words = [*policy.due, *(lab for labs in by_student for lab in labs if lab != EVERY)]
    return found + [f"no lab {word} in this run" for word in dict.fromkeys(words) if word not in labs]

"""The late policy of a course, as data: due dates, grace, free days, a price for each day, extensions.

timezone = "Europe/Vienna"
grace_minutes = 15
tokens = 3                # days late that cost nothing, of each student, all labs together
percent_per_day = 10
most_percent = 50         # what being late costs at most
most_days = 7             # what is handed in later has no points; tokens count

[due]                     # by the word of --lab
1 = 2026-10-05 23:59:00
capstone = 2026-12-11 18:00:00

[extensions.ada]          # days, or another date
1 = 2

[spent]                   # tokens that were used in a class run of its own
ada = 1
"""

from __future__ import annotations

import datetime
import zoneinfo
from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, field_validator

from grader.files import read_toml

UTC = datetime.timezone.utc
DAY = datetime.timedelta(days=1)


class LateError(Exception):
    """The late policy cannot be used, with the field."""


class LatePolicy(BaseModel):
    """What a due date is, and what missing it costs."""

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

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"{name} is no time zone known here, such as Europe/Vienna") from None
        return name

    @field_validator("due", mode="before")
    @classmethod
    def _dates(cls, due):
        # A number would be taken for seconds since 1970.
        if isinstance(due, dict) and any(isinstance(moment, (int, float)) for moment in due.values()):
            raise ValueError("a due date is written as 2026-10-05 23:59:00")
        return due

    def due_of(self, student: str, lab: str) -> datetime.datetime | None:
        """The local time at which a student's lab is due, extensions counted in; None where it has no date.

        A date in the file is of the course's time zone, whatever offset it may name.
        """
        due = self.due.get(lab)
        more = self.extensions.get(student, {}).get(lab, 0)
        if isinstance(more, datetime.datetime):
            return self._local(more)
        return None if due is None else self._local(due) + more * DAY

    def _local(self, moment: datetime.datetime) -> datetime.datetime:
        zone = zoneinfo.ZoneInfo(self.timezone)
        return (moment.astimezone(zone) if moment.tzinfo else moment).replace(tzinfo=None)

    def ends(self, due: datetime.datetime, days: int) -> datetime.datetime:
        """The moment in UTC until which something is `days` days late at most.

        A day late ends at the hour of the due date on the clock of the course, so that the day on which the
        clock changes has 23 or 25 hours. An hour that comes twice means the second, one that is left out the
        later reading: both are in the student's favour.
        """
        local = (due + days * DAY).replace(tzinfo=zoneinfo.ZoneInfo(self.timezone))
        moment = max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        return moment + datetime.timedelta(minutes=self.grace_minutes)

    def days_late(self, student: str, lab: str, handed_in: datetime.datetime) -> int:
        """Days that were begun after the due date, each with its grace; 0 where the lab has no date."""
        due = self.due_of(student, lab)
        if due is None:
            return 0
        days = max(0, (handed_in - self.ends(due, 0)) // DAY - 1)  # never too many, whatever the clock did
        while handed_in > self.ends(due, days):
            days += 1
        return days

    def lost(self, days: int) -> Fraction:
        """The share of the points that days late cost, tokens taken off already."""
        if self.most_days is not None and days > self.most_days:
            return Fraction(1)
        percent = min(Fraction(str(self.percent_per_day)) * days, Fraction(str(self.most_percent)))
        return percent / 100

    def tokens_of(self, student: str) -> int:
        """The tokens that a student has left for this class run."""
        return max(0, self.tokens - self.spent.get(student, 0))


def read(path: Path) -> LatePolicy:
    """The policy of a file; LateError for one that cannot be used."""
    try:
        return read_toml(path, LatePolicy)
    except ValueError as error:
        raise LateError(str(error)) from None


def strangers(policy: LatePolicy, students: set[str], labs: set[str]) -> list[str]:
    """Names in the policy that are of no student or of no lab of the course, in words."""
    known = [*policy.extensions, *policy.spent]
    found = [f"no student {name} in this run" for name in dict.fromkeys(known) if name not in students]
    words = [*policy.due, *(lab for labs in policy.extensions.values() for lab in labs)]
    return found + [f"no lab {word} in this run" for word in dict.fromkeys(words) if word not in labs]

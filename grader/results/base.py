"""The base of all models of results.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, FiniteFloat

DECIMALS = 6  # of sums of points in results.json
OF_AN_ITEM = 9  # decimals of an item's points: more, so that sums are exact to six


class Model(BaseModel):
    """A part of results.json; it is immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# One of 24 equal shares of 50 points is 2.083333333, and 21 of them are 43.75.
# Less than a millionth of a point counts as 0, else a sum could show points that no item has.
ItemPoints = Annotated[
    FiniteFloat,
    AfterValidator(lambda value: round(value, OF_AN_ITEM) + 0.0 if abs(value) >= 10**-DECIMALS else 0.0),
]
Points = Annotated[FiniteFloat, AfterValidator(lambda value: round(value, DECIMALS) + 0.0)]

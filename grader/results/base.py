"""What all models of results.json have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, FiniteFloat

DECIMALS = 6  # of sums of points in results.json
OF_AN_ITEM = 9  # decimals of its points: more, so that their sums are exact to six


class Model(BaseModel):
    """A part of results.json: it cannot be changed, and a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# A share of 50 points for 24 cases is 2.083333333, and 21 of them are 43.75.
# Less than a millionth of a point is none: a sum may show it where no item does.
ItemPoints = Annotated[
    FiniteFloat,
    AfterValidator(lambda value: round(value, OF_AN_ITEM) + 0.0 if abs(value) >= 10**-DECIMALS else 0.0),
]
Points = Annotated[FiniteFloat, AfterValidator(lambda value: round(value, DECIMALS) + 0.0)]

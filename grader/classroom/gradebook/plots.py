"""The plots of the class page: points of a lab, and speed of a timed shape, over the class."""

from __future__ import annotations

from grader.classroom.gradebook.view import BINS, Shape, Spread
from grader.report.page.drawing import Drawing

WIDTH, SIDE = 360, 10  # the margin left and right
ACROSS = WIDTH - 2 * SIDE
LEAST_PERCENT = 110  # that the axis of speeds reaches


def spread_plot(one: Spread) -> Drawing:
    """A bar for each tenth of the points, with the number of students above it."""
    counts = "".join(f"{10 * at} to {10 * at + 10} percent {count}; " for at, count in enumerate(one.bins))
    picture = Drawing(WIDTH, 150, f"{one.unit.title}: {counts}")
    step = ACROSS / BINS
    for at, count in enumerate(one.bins):
        left, height = SIDE + step * at, round(100 * count / one.most, 1)
        picture.rect(left, 118 - height, step - 2, height, "bin")
        if count:
            picture.text(left + step / 2 - 1, 114 - height, str(count), anchor="middle")
        picture.text(left, 133, str(10 * at), anchor="middle")
    picture.line(SIDE, 118.5, WIDTH - SIDE, 118.5, "axis")
    picture.text(WIDTH - SIDE, 133, "100", anchor="end")
    return picture


def shape_plot(shape: Shape) -> Drawing:
    """A dot for each student, the quartiles as a band, and the lines of the score."""
    most, (_, low, middle, high, _) = max(LEAST_PERCENT, shape.percents[-1]), shape.quartiles

    def x(percent: float) -> float:
        return round(SIDE + ACROSS * percent / most, 1)

    words = f"{len(shape.percents)} students, median {middle:.0f} percent of {shape.baseline}"
    picture = Drawing(WIDTH, 64, f"{shape.exercise}, {shape.name}: {words}")
    picture.line(SIDE, 40, WIDTH - SIDE, 40, "axis")
    picture.rect(x(low), 12, max(round(ACROSS * (high - low) / most, 1), 1), 28, "band")
    for at, kind in ((shape.passing_at, "passing"), (shape.full_at, "full")):
        if at is not None:
            picture.line(x(at), 8, x(at), 44, kind)
    for at, percent in enumerate(shape.percents):
        picture.circle(x(percent), 18 + 8 * (at % 3), 2.6, "dot faint")
    picture.line(x(middle), 10, x(middle), 40, "median")
    for at in (0, 50, 100):
        picture.text(x(at), 55, str(at), anchor="middle")
    return picture

"""What separates the wrong cases of an exercise from the right ones, in a sentence; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from grader.course.spec import PLAIN, Case

UP_TO = "or more; it is right up to"  # in a condition on one size
LARGEST = (16384, 8192, 4096, 2048, 1024, 512, 256, 128)
MULTIPLES = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2)


def contrast(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    """Return one condition that holds in every wrong case and in no right one; "" if none is found.

    With no right case, that is said. ValueError without a wrong case.
    """
    if not wrong:
        raise ValueError("no case is wrong")
    if not right:
        return "every case is wrong"
    found = (
        _by_a_word(wrong, right)
        or _by_a_layout(wrong, right)
        or _by_what_is_made(wrong, right)
        or _by_a_size(wrong, right)
        or _by_a_multiple(wrong, right)
        or _by_dtype(wrong, right)
    )
    return f"wrong only {found}" if found else ""


def _by_dtype(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    names = {case.dtype for case in wrong}
    if names & {case.dtype for case in right}:
        return ""
    return f"in {' and '.join(sorted(names))}"


def _by_a_word(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    """A parameter that is a text or a truth value, such as `values=masked`."""
    for key in keys(wrong, right):
        values = [case.params.get(key) for case in wrong]
        others = [case.params.get(key) for case in right]
        worded = any(isinstance(value, str | bool) for value in (*values, *others))
        if worded and None not in values and not set(values) & set(others):
            return f"where {key} is {' or '.join(dict.fromkeys(map(str, values)))}"
    return ""


def _by_a_layout(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    names = dict.fromkeys(name for case in wrong for name in case.layouts)
    for kind, has in (
        ("transposed", lambda one: one.transposed),
        ("padded", lambda one: one.pad > 0),
        ("expanded", lambda one: one.expanded),
        ("far apart", lambda one: one.far),
        ("spread over every second element", lambda one: one.step > 1),
        ("stored in another order", lambda one: one.swapped),
    ):
        fitting = [
            f"`{name}`"
            for name in names
            if all(has(case.layouts.get(name, PLAIN)) for case in wrong)
            and not any(has(case.layouts.get(name, PLAIN)) for case in right)
        ]
        if fitting:
            return f"where the rows of {' and '.join(fitting)} are {kind}"
        everywhere = all(any(map(has, case.layouts.values())) for case in wrong)
        if everywhere and not any(any(map(has, case.layouts.values())) for case in right):
            return f"where a tensor is {kind}"
    fitting = [
        f"`{name}`"
        for name in names
        if all(name in case.layouts for case in wrong) and not any(name in case.layouts for case in right)
    ]
    return f"where {' and '.join(fitting)} {_is(len(fitting))} not contiguous" if fitting else ""


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _by_what_is_made(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    if all(case.allocates for case in wrong) and not any(case.allocates for case in right):
        return "where no tensor for the result is passed"
    return ""


def _by_a_size(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    for key in keys(wrong, right):
        values, others = numbers(wrong, key), numbers(right, key)
        if len(values) != len(wrong) or not others:
            continue
        if min(values) > max(others):
            return f"where {key} is {min(values):g} {UP_TO} {max(others):g}"
        if max(values) < min(others):
            return f"where {key} is {max(values):g} or less; it is right from {min(others):g}"
    return ""


def _by_a_multiple(wrong: Sequence[Case], right: Sequence[Case]) -> str:
    for key in keys(wrong, right):
        values, others = numbers(wrong, key), numbers(right, key)
        if len(values) != len(wrong) or not others:
            continue
        for size in MULTIPLES:
            if all(value % size for value in values) and not any(value % size for value in others):
                return f"where {key} is no multiple of {size}"
        # A block is as large as the next power of two, up to some size.
        for size in LARGEST if all(isinstance(value, int) for value in (*values, *others)) else ():
            full, others_full = ([_is_full(value, size) for value in some] for some in (values, others))
            if all(full) and not any(others_full):
                return f"where {key} is a power of two, or a multiple of {size}: its last block is full"
            if all(others_full) and not any(full):
                return f"where {key} is no power of two and no multiple of {size}: its last block is not full"
    return ""


def _is_full(value: float, size: int) -> bool:
    return value % size == 0 or int(value) & (int(value) - 1) == 0


def keys(wrong: Sequence[Case], right: Sequence[Case]) -> list[str]:
    """Return the names of the parameters of some cases."""
    return list(dict.fromkeys(key for case in (*wrong, *right) for key in case.params))


def numbers(cases: Sequence[Case], key: str) -> list[float]:
    """Return the values of a parameter that are numbers."""
    values = (case.params.get(key) for case in cases)
    return [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]

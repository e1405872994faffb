"""Whether a case is wrong because of the config of an autotuned kernel: with another one it is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from grader.course.spec import Reason, Verdict
from grader.judge.usual_layout import WRONG
from grader.results.outcome import Outcome

Configs = Mapping[str, str]  # the text of a config, by the name of its kernel
# How a kernel is compiled. The interpreter, where other configs are tried, does not look at it.
OF_THE_COMPILER = {"num_warps", "num_stages", "num_ctas", "maxnreg"}


def explained(
    outcome: Outcome, ran: Sequence[Configs], grade: Callable[..., Outcome], is_tuned: bool = False
) -> Outcome:
    """Return the outcome of a case whose calls `ran` with these configs; if it `is_tuned`, the last twice.

    If it is wrong and they differ, the case is graded once more, with the first config in all calls. If it is
    wrong there as well, that outcome is returned: it is not about the config. If it is right with the last
    one in all calls, too, it is wrong because kernels ran twice.
    """
    if len(ran) < 2 or not ran[-1] or outcome.verdict not in WRONG or (ran[0] == ran[-1] and not is_tuned):
        return outcome
    usual = grade()
    if usual.verdict is not Verdict.PASS:
        return usual
    if is_tuned and (ran[0] == ran[-1] or grade(ran[-1]).verdict is Verdict.PASS):
        cause = when_tuned([*ran[-1]])
        return replace(outcome, reason=Reason.NONDETERMINISTIC, cause=cause, plain_cause=cause)
    cause = in_words(ran[0], ran[-1])
    return replace(outcome, cause=cause, plain_cause=cause, configs=ran[-1], right_configs=ran[0])


def when_tuned(kernels: Sequence[str]) -> str:
    """Say that running kernels more than once spoils the result."""
    named = " or ".join(f"`{name}`" for name in kernels)
    return (
        f"right where {named} runs once, and wrong where the autotuner has run it before, to time its "
        "configs: what a kernel adds to, or overwrites and reads, needs `reset_to_zero=` or `restore_value=`"
    )


def in_words(right: Configs, wrong: Configs) -> str:
    """Say what is unlike in the configs with which a case is right, and wrong."""
    for kernel, text in wrong.items():
        mine, others = _settings(text), _settings(right.get(kernel, ""))
        unlike = [name for name in mine if mine[name] != others.get(name, mine[name])]
        if unlike:
            good, bad = (", ".join(f"{name}={one[name]}" for name in unlike) for one in (others, mine))
            return f"not found; `{kernel}` is right with the config {good}, and wrong with {bad}"
    return "not found; it is right with one config of an autotuned kernel, and wrong with another"


def separated(right: Sequence[Configs], wrong: Sequence[Configs], kernels: Collection[str]) -> str:
    """Say what separates several configs with which cases are right from those with which they are wrong.

    That is the values of settings of one of these `kernels`, all that no right and wrong config share, or
    which of two numbers is the larger one; "" if nothing is.
    """
    for kernel in kernels:
        good, bad = ([_settings(one.get(kernel, "")) for one in some] for some in (right, wrong))
        names = [name for name in bad[0] if all(name in one for one in (*good, *bad))]
        apart = [name for name in names if not {one[name] for one in good} & {one[name] for one in bad}]
        if apart:
            fine, spoilt = (
                _listed([{name: one[name] for name in apart} for one in some]) for some in (good, bad)
            )
            return f"not found; `{kernel}` is right with {fine}, and wrong with {spoilt}"
        sizes = [name for name in names if all(one[name].isdigit() for one in (*good, *bad))]
        for larger, other in itertools.permutations(sizes, 2):
            are_larger = [[int(one[larger]) > int(one[other]) for one in some] for some in (good, bad)]
            if all(are_larger[1]) and not any(are_larger[0]):
                which = f"the configs in which {larger} is larger than {other}"
                return f"`{kernel}` is wrong with {which}"
    return ""


def _listed(some: Sequence[Mapping[str, str]]) -> str:
    """List settings: `A=1 or 2`, or `A=1, B=3 or A=2, B=4`."""
    words = [", ".join(f"{name}={value}" for name, value in one.items()) for one in some]
    first, *more = dict.fromkeys(words)
    alone = f"{next(iter(some[0]))}=" if len(some[0]) == 1 else ""
    return " or ".join((first, *(one.removeprefix(alone) for one in more)))


def unlike(right: Configs, wrong: Configs) -> list[str]:
    """Return the kernels whose configs are unlike in what decides a result."""
    return [kernel for kernel in wrong if _settings(wrong[kernel]) != _settings(right.get(kernel, ""))]


def _settings(text: str) -> dict[str, str]:
    """Read the text of a config, `BLOCK_M: 64, num_warps: 4`, without what no result depends on."""
    pairs = (setting.partition(": ") for setting in text.split(", "))
    return {name: value for name, _, value in pairs if name not in OF_THE_COMPILER}

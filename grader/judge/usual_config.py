"""Whether a case is wrong because of the config of an autotuned kernel: with another one it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from grader.course.spec import Verdict
from grader.judge.usual_layout import WRONG
from grader.results.outcome import Outcome

Configs = Mapping[str, str]  # the text of a config, by the name of its kernel


def explained(outcome: Outcome, ran: Sequence[Configs], grade: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of a case whose calls `ran` with these configs.

    If it is wrong and they differ, the case is graded once more, with the first config in all calls. If it is
    wrong there as well, that outcome is returned: it is not about the config.
    """
    if len(ran) < 2 or ran[0] == ran[-1] or outcome.verdict not in WRONG:
        return outcome
    usual = grade()
    if usual.verdict is not Verdict.PASS:
        return usual
    cause = in_words(ran[0], ran[-1])
    return replace(outcome, cause=cause, plain_cause=cause, configs=ran[-1])


def in_words(right: Configs, wrong: Configs) -> str:
    """Say what is unlike in the configs with which a case is right, and wrong."""
    for kernel, text in wrong.items():
        mine, others = _settings(text), _settings(right.get(kernel, ""))
        unlike = [name for name in mine if mine[name] != others.get(name, mine[name])]
        if unlike:
            good, bad = (", ".join(f"{name}={one[name]}" for name in unlike) for one in (others, mine))
            return f"`{kernel}` is right with the config {good}, and wrong with {bad}"
    return "it is right with one config of an autotuned kernel, and wrong with another"


def _settings(text: str) -> dict[str, str]:
    """Read the text of a config: `BLOCK_M: 64, num_warps: 4`."""
    pairs = (setting.partition(": ") for setting in text.split(", "))
    return {name: value for name, _, value in pairs}

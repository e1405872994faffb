"""Verdicts on generated code: the requirements of each named check on the kernels that a call launches."""

from __future__ import annotations

from collections.abc import Sequence

from grader.codegen.kernel_facts import CompiledKernel
from grader.course.spec import Lab, Verdict
from grader.course.symptoms import Symptom
from grader.judge.diagnosis import cause_of
from grader.results.kernel_facts import KernelFacts
from grader.results.outcome import Outcome

SYMPTOMS = {  # by the check that fails; SLOW for any other
    "tensor cores": Symptom.NO_TENSOR_CORES,
    "no spills": Symptom.SPILLS,
    "shared memory": Symptom.SHARED_MEMORY,
}


def check(name: str, kernels: Sequence[KernelFacts]) -> tuple[bool, str]:
    """Return whether a named check holds for every kernel, and one line that says what was found."""
    if not kernels:
        return False, "the call launched no Triton kernel"
    bad, words = CHECKS[name](kernels)
    return not bad, words if not bad else f"{words}: {bad[0].config}"


def outcome(lab: Lab, name: str, passed: bool, words: str, kernels: Sequence[CompiledKernel]) -> Outcome:
    """Return a check's outcome with the facts of the kernels, without PTX and SASS (see `make inspect`)."""
    found = None if passed else cause_of(lab, SYMPTOMS.get(name, Symptom.SLOW))
    return Outcome(
        Verdict.PASS if passed else Verdict.WRONG,
        share=float(passed),
        where=words,
        cause=found.cause if found else "",
        hint=found.hint if found else None,
        kernels=tuple(kernel.facts for kernel in kernels),
    )


def _tensor_cores(kernels: Sequence[KernelFacts]) -> tuple[list[KernelFacts], str]:
    bad = [k for k in kernels if not k.tensor_core]
    found = sorted({k.tensor_core for k in kernels if k.tensor_core})
    return (
        bad,
        f"{len(kernels) - len(bad)} of {len(kernels)} configs use {' and '.join(found) or 'tensor cores'}",
    )


def _no_spills(kernels: Sequence[KernelFacts]) -> tuple[list[KernelFacts], str]:
    bad = sorted((k for k in kernels if k.spill_bytes), key=lambda k: -k.spill_bytes)
    if bad:
        return (
            bad,
            f"{len(bad)} of {len(kernels)} configs spill, the worst {bad[0].spill_bytes} bytes a thread",
        )
    return bad, f"no spills, at most {max(k.registers for k in kernels)} registers a thread"


def _wide_loads(kernels: Sequence[KernelFacts]) -> tuple[list[KernelFacts], str]:
    bad = [k for k in kernels if k.load_widths_bytes and k.load_widths_bytes[0] < 16]
    least = min((k.load_widths_bytes or (16,))[0] for k in kernels)
    return bad, f"widest global load {least} bytes a thread, 16 is best"


def _shared_memory(kernels: Sequence[KernelFacts]) -> tuple[list[KernelFacts], str]:
    bad = [k for k in kernels if k.shared_bytes > k.shared_limit_bytes]
    most, limit = max(k.shared_bytes for k in kernels), kernels[0].shared_limit_bytes
    return bad, f"at most {most / 1024:.0f} of {limit / 1024:.0f} KB of shared memory"


CHECKS = {
    "tensor cores": _tensor_cores,
    "no spills": _no_spills,
    "wide loads": _wide_loads,
    "shared memory": _shared_memory,
}

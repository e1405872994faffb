"""Verdicts on generated code: the requirements of each named check on the kernels that a call launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from grader.codegen.kernel_facts import CompiledKernel
from grader.course.spec import Lab, Verdict
from grader.course.symptoms import Symptom
from grader.judge.diagnosis import cause_of
from grader.results.kernel_facts import KernelFacts
from grader.results.outcome import Outcome

TENSOR_CORES = "tensor cores"
OTHERS_ON_A_CPU = (
    "for tensors on a CPU, where the products of tl.dot are counted, other kernels are launched: "
    "launch the same ones there"
)
SYMPTOMS = {  # by the check that fails; SLOW for any other
    TENSOR_CORES: Symptom.NO_TENSOR_CORES,
    "no spills": Symptom.SPILLS,
    "shared memory": Symptom.SHARED_MEMORY,
}


@dataclass(frozen=True)
class Verified:
    """What the kernels of verified calls did, as the worker reports it.

    `launched` has each kernel's work of tl.dot, by identity: multiplications in the interpreter; on a GPU the
    number of launches with tensor-core instructions in a loop. `is_counted` is False if the interpreter, in
    which products are counted for a GPU as well, launched other kernels. `is_needed` is False if a result
    hardly changes where tl.dot adds nothing. `calls` are its parts, if they are known: a function may launch
    other kernels for other sizes, and not those that are checked.
    """

    launched: Mapping[str, int] = field(default_factory=dict)
    wanted: float = 0.0  # that work, if tl.dot does at least half of what the results take
    is_counted: bool = True
    is_needed: bool = True
    calls: tuple[Verified, ...] = ()

    def does_most(self, kernels: Collection[str]) -> bool:
        """Return whether these kernels do at least half of the work of the calls that launch one of them."""
        calls = [one for one in self.calls or (self,) if one.launched.keys() & kernels]
        done = sum(one.launched.get(name, 0) for one in calls for name in kernels)
        return bool(calls) and done >= sum(one.wanted for one in calls)


Check: TypeAlias = Callable[[Sequence[CompiledKernel], Verified | None], tuple[bool, str]]


def verified_only(kernels: Sequence[CompiledKernel], verified: Verified) -> list[CompiledKernel]:
    """Return the kernels whose source a verified run has launched; those in CUDA C++ are not looked at."""
    return [kernel for kernel in kernels if not kernel.identity or kernel.identity in verified.launched]


def check(name: str, kernels: Sequence[CompiledKernel], verified: Verified | None = None) -> tuple[bool, str]:
    """Return whether a named check holds, and one line that says what was found.

    Kernels that no verified run has launched are left out; with None for `verified` all are looked at.
    """
    if not kernels:
        return False, "the call launched no Triton kernel"
    if verified is not None:
        shown, kernels = kernels, verified_only(kernels, verified)
        if not kernels:
            names = ", ".join(dict.fromkeys(kernel.name for kernel in shown))
            return False, f"no case that passed has launched a kernel that this call launches: {names}"
    return CHECKS[name](kernels, verified)


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


def _tensor_cores(kernels: Sequence[CompiledKernel], verified: Verified | None) -> tuple[bool, str]:
    """Return whether one kernel of the call uses tensor cores in all its configs, and what was found.

    One is enough: split-K and stream-K add up their parts in a second kernel. It must do so in a loop, and in
    verified runs most products must come from the tl.dot of such kernels.
    """
    configs: dict[tuple[str, str], list[CompiledKernel]] = defaultdict(list)
    for kernel in kernels:
        configs[kernel.name, kernel.identity].append(kernel)
    best = max(configs.values(), key=lambda own: sum(map(_multiplies, own)) / len(own))
    bad = [kernel for kernel in best if not _multiplies(kernel)]
    found = " and ".join(sorted({k.tensor_core for k in best if _multiplies(k)})) or "tensor cores"
    words = f"{len(best) - len(bad)} of {len(best)} configs use {found}"
    if bad:
        outside = "instructions of tensor cores in no loop: " if bad[0].tensor_core else ""
        return False, f"{words}: {outside}{bad[0].config}"
    sound = {identity for (_, identity), own in configs.items() if identity and all(map(_multiplies, own))}
    if verified and sound and not verified.does_most(sound):
        if not verified.is_counted:
            return False, f"{words}, but {OTHERS_ON_A_CPU}"
        return False, f"{words}, but in the cases that passed tl.dot computes less than half of the products"
    if verified and not verified.is_needed:
        return False, f"{words}, but the result hardly changes without what tl.dot computes"
    return True, words


def _multiplies(kernel: CompiledKernel) -> bool:
    return bool(kernel.tensor_core) and kernel.multiplies_in_a_loop


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


def _every(find: Callable[[Sequence[KernelFacts]], tuple[list[KernelFacts], str]]) -> Check:
    """Return a check that holds if `find` names no kernel."""

    def holds(kernels: Sequence[CompiledKernel], _: Verified | None) -> tuple[bool, str]:
        bad, words = find(kernels)
        return not bad, words if not bad else f"{words}: {bad[0].config}"

    return holds


CHECKS: dict[str, Check] = {
    TENSOR_CORES: _tensor_cores,
    "no spills": _every(_no_spills),
    "wide loads": _every(_wide_loads),
    "shared memory": _every(_shared_memory),
}

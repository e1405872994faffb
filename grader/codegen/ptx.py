"""Count the PTX instructions of a kernel that move data, multiply or synchronize."""

from __future__ import annotations

import re

# The first pattern that matches a line gives its family.
FAMILIES = {
    "wgmma": re.compile(r"\bwgmma\.mma_async\S*"),
    "wgmma wait": re.compile(r"\bwgmma\.(?:fence|commit_group|wait_group)\S*"),
    "mma.sync": re.compile(r"\bmma\.sync\S*"),
    "TMA load": re.compile(r"\bcp\.async\.bulk\.tensor\.\dd\.shared\S*"),
    "TMA store": re.compile(r"\bcp\.async\.bulk\.tensor\.\dd\.global\S*"),
    "bulk wait": re.compile(r"\bcp\.async\.bulk\.(?:commit|wait)_group\S*"),
    "mbarrier": re.compile(r"\bmbarrier\.\S+"),
    "cp.async": re.compile(r"\bcp\.async\.(?:c[ag]|commit_group|wait_group)\S*"),
    "ld.global": re.compile(r"\bld\.global\S*"),
    "st.global": re.compile(r"\bst\.global\S*"),
    "stmatrix": re.compile(r"\bstmatrix\S*"),
    "ldmatrix": re.compile(r"\bldmatrix\S*"),
    "ld.shared": re.compile(r"\bld\.shared\S*"),
    "st.shared": re.compile(r"\bst\.shared\S*"),
    "barrier": re.compile(r"\b(?:bar|barrier)\.\S+"),
}


def family(line: str) -> tuple[str, str] | None:
    """Return the family of a line and its instruction; None if it belongs to none."""
    for name, pattern in FAMILIES.items():
        if found := pattern.search(line):
            return name, found[0].rstrip(";")
    return None


def counts(ptx: str) -> dict[str, int]:
    """Count the lines of each family in a text; the body of a loop counts once."""
    found = [one[0] for line in ptx.splitlines() if (one := family(line))]
    return {name: found.count(name) for name in FAMILIES if name in found}


TENSOR_CORE = re.compile(r"\b(wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b")
_STEP = re.compile(
    rf"^[ \t]*(?P<label>\$\w+):|\bbra(?:\.uni)?\s+(?P<branch>\$\w+)|{TENSOR_CORE.pattern}", re.MULTILINE
)


def multiplies_in_a_loop(ptx: str) -> bool:
    """Return whether a tensor-core instruction lies in a loop: between a label and a branch back to it."""
    if "mma" not in ptx:  # as in most kernels, of which some have a megabyte of text
        return False
    labels: dict[str, int] = {}
    last_product = -1
    for step in _STEP.finditer(ptx):
        if step["label"]:
            labels[step["label"]] = step.start()
        elif not step["branch"]:
            last_product = step.start()
        elif last_product > labels.get(step["branch"], len(ptx)):
            return True
    return False


def shape(ptx: str) -> str:
    """Return the shape of the widest tensor-core instruction, like m64n256k16; "" if there is none."""
    shapes = re.findall(r"\b(?:wgmma\.mma_async|mma)\.sync\.aligned\.(m\d+n(\d+)k\d+)", ptx)
    return max(shapes, key=lambda one: int(one[1]), default=("", ""))[0]

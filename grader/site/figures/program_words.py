"""Values and steps of a program as text, for the figure of one program's life."""

from __future__ import annotations

from collections.abc import Sequence

UNDEFINED = "?"


def shown(number: float | str | None) -> str:
    """Return a number as short text, fractions with three digits; empty for memory that was never written."""
    if number is None:
        return ""
    if isinstance(number, bool | str):
        return str(number)
    return str(int(number)) if number == int(number) else f"{number:.3g}"


def value(one) -> str | list[str]:
    """Return the value of a name: text for one number or a pointer, a list of texts for a block."""
    if isinstance(one, dict):
        if isinstance(one["offset"], list):
            return [f"{one['buffer']} + {offset}" for offset in one["offset"]]
        return f"{one['buffer']} + {one['offset']}"
    return [shown(lane) for lane in one] if isinstance(one, list) else shown(one)


def undefined(block: str | list[str], defined: Sequence[bool]) -> str | list[str]:
    """Return the result of a load: lanes that are masked off without `other`, or outside, have no value."""
    if isinstance(block, str) or len(block) != len(defined):
        return block
    return [lane if there else UNDEFINED for lane, there in zip(block, defined, strict=True)]


def of_step(statement, accesses: list[dict], changed: dict) -> str:
    """Return a step as one or two sentences."""
    one = statement.first == statement.last
    where = f"Line {statement.first}" if one else f"Lines {statement.first} to {statement.last}"
    if accesses:
        computed = f" compute {statement.stored} and" if statement.stored else ""
        computed = computed.replace(" compute", " computes", int(one))
        return f"{where}{computed} {' '.join(_moved(access, one) for access in accesses)}"
    if not statement.phases:
        return f"{where}: {_changes(changed)}." if changed else f"{where}: the loop is at its end."
    verb = "gives" if one else "give"
    if statement.phases == ("mask",) and changed:
        (name, mask), *_ = changed.items()
        return f"{where} {verb} {name}: {mask.count('True')} of {len(mask)} lanes lie before the end."
    return f"{where} {verb} {_changes(changed) or 'what was known before'}."


def _changes(changed: dict) -> str:
    parts = [f"{name} = {', '.join(one) if isinstance(one, list) else one}" for name, one in changed.items()]
    return "; ".join(parts)


def _moved(access: dict, one: bool) -> str:
    verb = access["kind"] + ("s" if one else "")
    lanes, there = len(access["mask"]), sum(access["mask"])
    inside = [at for at, is_there in zip(access["bytes"], access["mask"], strict=True) if is_there]
    elements = [at for at, is_there in zip(access["offsets"], access["mask"], strict=True) if is_there]
    if not inside:
        return f"{verb} nothing: all {lanes} lanes are masked off."
    text = (
        f"{verb} {there} of {lanes} lanes: elements {elements[0]} to {elements[-1]}, "
        f"bytes {inside[0]} to {inside[-1] + access['item_bytes'] - 1} after {access['buffer']}."
    )
    text += _past(access)
    off = [lane for lane, is_there in enumerate(access["mask"]) if not is_there]
    if not off:
        return text
    between = "and" if len(off) == 2 else "to"
    who = f"Lane {off[0]} is" if len(off) == 1 else f"Lanes {off[0]} {between} {off[-1]} are"
    if access["kind"] == "store":
        return f"{text} {who} masked off and write{'s' if len(off) == 1 else ''} nothing."
    holds = access["values"][off[0]] if access["other"] else "no defined value"
    return f"{text} {who} masked off and hold{'s' if len(off) == 1 else ''} {holds}."


def _past(access: dict) -> str:
    """Say which lanes lie outside of the buffer; empty if none does."""
    out = [lane for lane, is_out in enumerate(access.get("outside", ())) if is_out]
    if not out:
        return ""
    verb = "reads" if access["kind"] == "load" else "writes"
    at = [access["offsets"][lane] for lane in out]
    if len(out) == 1:
        return f" Lane {out[0]} {verb} element {at[0]}, outside of {access['buffer']}."
    between = "and" if len(out) == 2 else "to"
    where = f"elements {min(at)} {between} {max(at)}, outside of {access['buffer']}"
    return f" Lanes {out[0]} {between} {out[-1]} {verb[:-1]} {where}."

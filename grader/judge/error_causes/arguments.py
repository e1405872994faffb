"""Calls whose arguments do not fit, from the signature of what is called."""

from __future__ import annotations

import ast
import inspect
import re
from typing import NamedTuple

from grader.judge.error_causes.failed import Failed, assigned, constants, parameters
from grader.judge.error_causes.known_names import KEYWORDS, nearest

_KEYWORD = re.compile(r"got an unexpected keyword argument '(\w+)'|Keyword argument (\w+) was specified but")
_MISSING = re.compile(
    r"missing (?:\d+ required (?:positional|keyword-only) arguments?|a required argument): (.+)"
)
_TWICE = re.compile(r"multiple values for (?:keyword )?argument '(\w+)'")
_COUNT = re.compile(r"(\S+)\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+)")
_LACKS = re.compile(r"(\S+)\(\) missing \d+ required positional arguments?")
_CONFLICT = re.compile(r"Conflicting meta-parameters: (\w+)")
MOST_WORDS = 100  # letters of a list of values
ITSELF = 1.0  # of the same, where the parameter that is said to be missing is passed by its name
LIKELY = 2.0  # so many more values have the name of their parameter, if one in the middle is missing
_INTERNAL = ("_semantic", "_builder", "_generator", "self")


class Called(NamedTuple):
    """A function that is called: how the file writes it, and its parameters."""

    words: str
    parameters: list[str]
    own: ast.FunctionDef | None = None


def called(failed: Failed, call: ast.Call) -> Called | None:
    """What a call calls, where its parameters are known: of Triton, this file, or a module beside it."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="tl"), attr=name):
            function = _of_triton(name)
            known = _parameters_of(function)
            return Called(f"`tl.{name}`", known) if known is not None else None
        case ast.Name(id=name):
            sources = (failed.source, *failed.given.values())
            own = next((one for source in sources if (one := source.defined(name))), None)
            return Called(f"`{name}`", parameters(own), own) if own else None
    return None


def _of_triton(name: str) -> object:
    import triton.language as tl

    return getattr(tl, name, None) if not name.startswith("_") else None


def _parameters_of(function: object) -> list[str] | None:
    inner = getattr(function, "fn", function)  # of a function under @triton.jit
    try:
        names = list(inspect.signature(inner).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return [one for one in names if one not in _INTERNAL]


def unexpected_keyword(failed: Failed) -> str | None:
    """A keyword that the called function does not have."""
    found = _KEYWORD.search(failed.text)
    if not found:
        return None
    name = found[1] or found[2]
    launch = failed.launch()
    for call in failed.calls():
        if name not in [one.arg for one in call.keywords]:
            continue
        target = called(failed, call)
        if target:
            return of_keyword(target.words, target.parameters, name)
    if launch and not failed.in_kernel:
        kernel, _ = launch
        return of_keyword(f"the kernel `{kernel.name}`", parameters(kernel), name)
    graded = _graded(failed)
    if graded:
        return f"the grader calls `{graded.name}` with `{name}=`, and it has no such parameter"
    return None


def _graded(failed: Failed) -> ast.FunctionDef | None:
    """The graded function, where the call itself failed before any of its lines ran."""
    found = re.match(r"(\w+)\(\) ", failed.text)
    return failed.source.defined(found[1]) if found and not failed.frames else None


def of_keyword(words: str, known: list[str], name: str) -> str:
    """Say that a function has no such parameter, and which it has."""
    near = next((one for one in KEYWORDS.get(name, ()) if one in known), None) or nearest(name, known)
    if near:
        return f"{words} has no argument `{name}`; it is called `{near}`"
    return f"{words} has no argument `{name}`; it takes {listed(known)}"


def missing(failed: Failed) -> str | None:
    """An argument that a call or a launch does not give."""
    found = _MISSING.search(failed.text)
    if not found:
        return None
    names = re.findall(r"'(\w+)'", found[1])
    if not names:
        return None
    launch = failed.launch()
    inside = failed.in_kernel
    if launch and not inside and names[0] in parameters(launch[0]):
        return _left_out(failed, *launch, names) or _not_launched(failed, launch[0], names)
    for call in failed.calls():
        target = called(failed, call)
        if target and names[0] in target.parameters:
            return f"{target.words} takes {listed(target.parameters)}; {listed(names)} {_is(names)} not given"
    graded = _graded(failed)
    if graded:
        return (
            f"the grader calls `{graded.name}` without {listed(names)}: what the skeleton lacks has a default"
        )
    if re.match(r"\w+\.backward\(\)", failed.text) and "ctx" not in names:
        return "`backward` takes `ctx` and one gradient for each result of `forward`, and has more parameters"
    if "ctx" in names or (failed.kind == "TypeError" and failed.text.startswith("forward()")):
        return "`forward` and `backward` of an autograd function have `ctx` as their first parameter"
    return None


def _left_out(failed: Failed, kernel: ast.FunctionDef, call: ast.Call, names: list[str]) -> str:
    """Say which value is missing among those that a launch gives by their place; "" if it is the last.

    Python names the last parameter. With one value inserted where it is missing, the others are more like the
    names of their parameters.
    """
    given = {one.arg for one in call.keywords}
    values = _in_order(failed.source.function(call.lineno), call)
    free = [name for name in parameters(kernel) if name not in given][: len(values) + 1]
    if len(names) != 1 or not values or len(free) <= len(values) or free[-1] != names[0]:
        return ""
    likeness = [sum(map(_likeness, free[:at] + free[at + 1 :], values)) for at in range(len(free))]
    best = max(range(len(free)), key=lambda at: (likeness[at], at))
    # What is said to be missing is passed, and so stands in another place.
    needed = ITSELF if names[0] in values else LIKELY
    if likeness[best] < likeness[-1] + needed:
        return ""
    what = f"the launch does not pass `{free[best]}`, parameter {best + 1} of `{kernel.name}`"
    return f"{what}: all that follows is one place too early"


def _in_order(host: ast.FunctionDef | None, call: ast.Call) -> list[str]:
    """Return the code of each value that a call passes by its place; none if a star hides how many."""
    found = list[str]()
    for one in call.args:
        match one:
            case ast.Starred(ast.Name(name)):
                values = [value for value in assigned(host, name) if isinstance(value, ast.Tuple | ast.List)]
                if len(values) != 1:
                    return []
                found += map(ast.unparse, values[0].elts)
            case ast.Starred(ast.Tuple(parts) | ast.List(parts)):
                found += map(ast.unparse, parts)
            case ast.Starred():
                return []
            case _:
                found.append(ast.unparse(one))
    return found


def _likeness(name: str, value: str) -> float:
    """Return the share of a parameter's words that the code of its value has."""
    words = {word for word in name.lower().split("_") if word not in ("ptr", "")}
    return len(words & {*re.findall(r"[a-z]+", value.lower().replace("_", " "))}) / max(1, len(words))


def _not_launched(failed: Failed, kernel: ast.FunctionDef, names: list[str]) -> str:
    near = nearest(names[0], [one for one in _keys(failed) if one not in parameters(kernel)])
    if near:
        return f"the kernel `{kernel.name}` has a parameter `{names[0]}`, and the configs give `{near}`"
    what = "neither the launch nor a config gives" if _is_tuned(kernel) else "the launch does not pass"
    which = "" if len(names) > 1 else f", a {'constant' if names[0] in constants(kernel) else 'parameter'} of"
    return f"{what} {listed(names)}" + (f"{which} `{kernel.name}`" if which else f" to `{kernel.name}`")


def _keys(failed: Failed) -> list[str]:
    """Return the names in the dicts of a file, such as those that configs set."""
    return [
        one.value
        for node in ast.walk(failed.source.tree)
        if isinstance(node, ast.Dict)
        for one in node.keys
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


def _is_tuned(kernel: ast.FunctionDef) -> bool:
    return any(
        "autotune" in ast.unparse(one) or "heuristics" in ast.unparse(one) for one in kernel.decorator_list
    )


def twice(failed: Failed) -> str | None:
    """An argument that is given in order and by name, or by a config and by the launch."""
    conflict = _CONFLICT.search(failed.text)
    if conflict:
        return (
            f"`{conflict[1]}` is set by the configs of the autotuner: a config and the launch cannot "
            "both give it"
        )
    found = _TWICE.search(failed.text)
    if not found:
        return None
    name, launch = found[1], failed.launch()
    if name in _INTERNAL:  # which Triton passes itself, behind the arguments of a call in a kernel
        takes = re.search(r"(\w+)\(\) got multiple", failed.text)
        which = f"`tl.{takes[1]}`" if takes else "a function of triton.language in this line"
        return f"{which} gets more arguments than it takes"
    if launch:
        kernel, call = launch
        at = parameters(kernel).index(name) + 1 if name in parameters(kernel) else 0
        by_place = _plain(call) and 0 < at <= len(call.args)
        stars = [ast.unparse(one) for one in call.args if isinstance(one, ast.Starred)]
        by_name = name in [one.arg for one in call.keywords]
        if at and stars and by_name and name not in _keys(failed):
            words = f"the launch passes more values in order than the {at - 1} parameters before `{name}`"
            every = f": look how many {' and '.join(f'`{star}`' for star in dict.fromkeys(stars))} pass"
            return words + (every if len(every) <= MOST_WORDS else ": look how many each `*` passes")
        if _is_tuned(kernel) and not by_place:
            return (
                f"`{name}` is given by the configs of the autotuner and by the launch: only one of them may"
            )
        more = f": the launch has {len(call.args)} values before it" if by_place else ""
        return f"`{name}` is given twice, by its place and by its name{more}"
    return f"`{name}` is given twice, by its place and by its name"


def _plain(call: ast.Call) -> bool:
    return not any(isinstance(one, ast.Starred) for one in call.args)


def combining(failed: Failed) -> str | None:
    """A function that joins the values of a reduction or a scan, with another number of parameters."""
    found = _COUNT.search(failed.text) or _LACKS.search(failed.text)
    own = failed.source.defined(found[1].rpartition(".")[2]) if found else None
    if own is None:
        return None
    for call in (one for one in ast.walk(failed.source.tree) if isinstance(one, ast.Call)):
        name = ast.unparse(call.func)
        handed = [*call.args[1:], *(one.value for one in call.keywords)]
        joins = any(isinstance(one, ast.Name) and one.id == own.name for one in handed)
        if name.rpartition(".")[2] not in ("reduce", "associative_scan") or not joins:
            continue
        first, have = call.args[0] if call.args else None, len(parameters(own))
        if isinstance(first, ast.Tuple):
            many, told = 2 * len(first.elts), f"of a tuple of {len(first.elts)} blocks"
        else:
            many, told = 2, "of one block"
        if have != many:
            return (
                f"`{name}` {told} calls `{own.name}` with {many} numbers, those of one side and then of "
                f"the other, and it takes {have}"
            )
    return None


def too_many(failed: Failed) -> str | None:
    """More values in order than a function takes."""
    found = _COUNT.search(failed.text)
    if not found:
        return None
    name, most, given = found[1].rpartition(".")[2], int(found[2]), int(found[3])
    launch = failed.launch()
    if name == "<lambda>" and launch:
        return "the grid function must take one argument, the meta-parameters: `lambda meta: (...,)`"
    if launch and not failed.in_kernel and name in (launch[0].name, "dynamic_func"):
        kernel, _ = launch
        return f"the launch passes {given} values, and `{kernel.name}` takes {listed(parameters(kernel))}"
    own = failed.source.defined(name)
    if own is not None and name in ("forward", "backward"):
        if not own.args.args or own.args.args[0].arg != "ctx":
            return f"`{name}` of an autograd function has `ctx` as its first parameter"
        return f"`{name}` gets {given - 1} values besides `ctx`, and takes {most - 1}"
    if own is not None and own.args.kwonlyargs and given > most:
        named = [one.arg for one in own.args.kwonlyargs]
        return f"`{name}` takes {most} values in order; {listed(named)} behind the `*` is given by name"
    for call in failed.calls():
        target = called(failed, call)
        if target and target.words.strip("`").rpartition(".")[2] == name:
            return f"{target.words} takes {listed(target.parameters)}, and gets {given} values in order"
    return None


def listed(names: list[str], most: int = 9) -> str:
    """The names in backticks, with "and" before the last."""
    shown = [f"`{one}`" for one in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1] if shown else ""]))


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


RULES = (combining, unexpected_keyword, missing, twice, too_many)

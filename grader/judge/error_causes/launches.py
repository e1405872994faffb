"""Launches: the grid, the options, and what is passed in place of a tensor."""

from __future__ import annotations

import ast
import re

from grader.judge.error_causes.failed import Failed, constants, parameters, short
from grader.judge.error_causes.known_names import nearest
from grader.judge.error_causes.roles import is_number

_NO_LENGTH = re.compile(
    r"object of type '(\w+)' has no len\(\)|'(int)' object is not (?:subscriptable|iterable)"
)
_NO_CONFIGS = re.compile(
    r"'(Config|NoneType|bool)' object is not iterable|m(?:in|ax)\(\) (?:arg|iterable argument) is an? empty"
)
_NO_INTEGER = re.compile(r"'(float|Tensor|str|NoneType)' object cannot be interpreted as an integer")
_POINTER = re.compile(r"Unsupported ptr type .*? in `?tl\.(\w+)`?")
_CPU_TENSOR = re.compile(r"Pointer argument .*cannot be accessed from Triton \(cpu tensor")


def grid(failed: Failed) -> str | None:
    """A grid that is no tuple of at most three whole numbers."""
    launch = failed.launch()
    if launch is None or failed.in_kernel:
        return None
    found = _NO_LENGTH.search(failed.text)
    if found:
        kind = found[1] or found[2]
        comma = "; parentheses alone make none, the comma does" if kind == "int" else ""
        return f"the grid must be a tuple, such as `(programs,)`, and is {_a(kind)}{comma}"
    found = _NO_INTEGER.search(failed.text)
    if found and found[1] == "float":
        return (
            "the grid has a float: `/` or a size with a point gives one, `triton.cdiv` or `//` a whole number"
        )
    if found:
        return f"the grid has {_a(found[1])} in place of a whole number"
    if re.search(r"grid must have at most 3 dim|too many values .*grid", failed.text):
        return "a grid has at most three numbers"
    return None


def grid_name(failed: Failed) -> str | None:
    """A grid function that asks the meta-parameters for a name that they do not have."""
    launch = failed.launch()
    if failed.kind != "KeyError" or launch is None:
        return None
    name, kernel = failed.text.strip("'\""), launch[0]
    if f'"{name}"' not in failed.code.replace("'", '"'):
        return None
    decorators = [_decorator(one) for one in kernel.decorator_list]
    if "heuristics" in decorators and "autotune" in decorators[decorators.index("heuristics") :]:
        return (
            f"`triton.heuristics` asks for `{name}` before a config has set it: it stands above "
            "`triton.autotune`, and belongs below it"
        )
    near = nearest(name, parameters(kernel)) or _first_like(name, constants(kernel))
    has = (
        f"; the kernel has `{near}`" if near else f"; the kernel's constants are {_listed(constants(kernel))}"
    )
    return f"the grid function asks for `{name}`, which no launch or config gives{has}"


def pruned(failed: Failed) -> str | None:
    """What `early_config_prune` returns is no list of configs, or an empty one."""
    launch, found = failed.launch(), _NO_CONFIGS.search(failed.text)
    if launch is None or failed.in_kernel or found is None:
        return None
    names = {
        value.id
        for one in launch[0].decorator_list
        for node in ast.walk(one)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "early_config_prune" and isinstance(value, ast.Name)
    }
    function = failed.source.defined(min(names, default=""))
    if function is None:
        return None
    what = {None: "no config at all", "Config": "a config by itself"}.get(found[1], _a(found[1]))
    asked = f"`{function.name}`, the kernel's `early_config_prune`, must return a list of configs"
    return f"{asked}, and returns {what} in this call"


def _decorator(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _first_like(name: str, names: list[str]) -> str | None:
    return next((one for one in names if name.startswith(one) or one.startswith(name)), None)


def whole_shape(failed: Failed) -> str | None:
    """All strides, or sizes, of a tensor as one argument of a kernel."""
    launch = failed.launch()
    if launch is None or not re.search(r"'tuple'|tuple object|tuple_type", failed.text):
        return None
    call = launch[1]
    for one in (*call.args, *(keyword.value for keyword in call.keywords)):
        match one:
            case ast.Call(ast.Attribute(tensor, "stride" | "size"), [], []):
                code, wanted = ast.unparse(one), f"{ast.unparse(one)[:-1]}0)"
            case ast.Attribute(tensor, "shape"):
                code, wanted = ast.unparse(one), f"{ast.unparse(one)}[0]"
            case _:
                continue
        return (
            f"the launch passes `{code}`, which has a number for each axis of `{ast.unparse(tensor)}`: "
            f"a kernel takes them one by one, as in `{wanted}`"
        )
    return None


def no_pointer(failed: Failed) -> str | None:
    """Numbers where tl.load or tl.store wants addresses."""
    if _CPU_TENSOR.search(failed.text):
        return "a tensor on the CPU is passed to a kernel on the GPU: make it with `device=x.device`"
    found = _POINTER.search(failed.text)
    if not found:
        return None
    launch = failed.launch()
    for node in ast.walk(launch[1]) if launch else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "data_ptr"
        ):
            return f"{short(node)} is a number: pass the tensor itself, which Triton takes as a pointer"
    for call in failed.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr == found[1] and call.args:
            first = call.args[0]
            return (
                f"`tl.{found[1]}` takes pointers, and {short(first)} has numbers: "
                f"the pointer of the tensor is missing, or another value is passed for it"
            )
    return None


def order(failed: Failed) -> str | None:
    """A tensor that is passed for a number, or a number for a tensor, by the order of the launch."""
    found = re.search(r"invalid operands of type pointer<\w+> and|and pointer<\w+>", failed.text)
    launch = failed.launch()
    if not found or launch is None or not failed.in_kernel:
        return None
    kernel, call = launch
    given = dict(zip(parameters(kernel), call.args, strict=False))
    for node in failed.nodes(ast.Compare):
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in given and isinstance(given[one.id], ast.Name):
                passed = given[one.id]
                if isinstance(passed, ast.Name) and passed.id != one.id:
                    return (
                        f"`{one.id}` is a pointer here: the launch passes `{passed.id}` for it, "
                        "and it must pass its values in the order of the parameters"
                    )
    host = failed.source.function(call.lineno)
    for name, value in given.items():
        if "ptr" in name and is_number(value, host):
            return (
                f"`{name}` is to be a pointer, and line {value.lineno} passes {short(value)} for it: "
                "the launch must pass its values in the order of the parameters"
            )
    return None


def options(failed: Failed) -> str | None:
    """num_warps and others that a launch cannot have."""
    found = re.search(r"(num_warps|num_ctas|num_stages) must be a power of (?:2|two)", failed.text)
    if found:
        passed = [
            f", and line {one.value.lineno} passes {short(one.value)}"
            for one in failed.nodes(ast.keyword)
            if isinstance(one, ast.keyword)
            and one.arg == found[1]
            and not isinstance(one.value, ast.Constant)
        ]
        return f"`{found[1]}` must be a power of two{passed[0] if len(passed) == 1 else ''}"
    found = re.search(r"[Nn]umber of threads|threads per block|num_warps.*(?:exceeds|too)", failed.text)
    return "a block has at most 1024 threads, which are 32 warps" if found else None


def _a(kind: str) -> str:
    words = {
        "int": "a whole number",
        "float": "a float",
        "NoneType": "None",
        "str": "a text",
        "Tensor": "a tensor",
    }
    return words.get(kind, f"a {kind}")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{one}`" for one in names) or "none"


RULES = (grid_name, pruned, grid, whole_shape, no_pointer, order, options)

"""Refused files: the plain reason, where the screen's own line gives none that helps."""

from __future__ import annotations

import ast
import re

from grader.course.spec import Verdict
from grader.judge.error_causes.arguments import of_keyword
from grader.judge.error_causes.failed import Failed, parameters
from grader.judge.error_causes.known_names import IN_TRITON, OF_A_BLOCK, OF_A_TENSOR, nearest, public
from grader.judge.error_causes.names import of_a_block, of_a_tensor, of_triton

_IMPORT = re.compile(r"`import ([\w.]+)` is not permitted")
_FROM = re.compile(r"`from ([\w.]+) import (\w+)` is not permitted")
_NAME = re.compile(r"`([\w.]+)` is not permitted;")
_PART = re.compile(r"`\.\w+` of `([\w.]+)` is not permitted")
_METHOD = re.compile(r"`\.(\w+)` is not permitted in (a kernel|host code)")
_OF_CTX = re.compile(r"`\.(\w+)` of ctx is not permitted")
_LAUNCHED = re.compile(r"`(\w+)=` in a launch is not permitted")
_IN_CONFIG = re.compile(r"`(\w+)` in a Config is not permitted")
_CONFIG = re.compile(r"`(\w+)` is not permitted in triton\.Config")
_STORED = re.compile(r"storing to `(\w+)\[(.+?)\]`")
_ANNOTATION = re.compile(
    r"the annotation `(\w+)[\w.]*` is not permitted; .* is no type that the file imports"
)
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook")
IMPORTS = {"tl": "import triton.language as tl", "triton": "import triton", "torch": "import torch"}
_NO_GRID = re.compile(r"calls a kernel without a grid")


def refused(failed: Failed) -> str | None:
    """The reason for a refusal; None where the screen's line says what to write instead."""
    if failed.verdict is not Verdict.POLICY:
        return None
    if _is_experiment(failed):
        return (
            "this line runs whenever the file is imported: an experiment belongs "
            'under `if __name__ == "__main__":`, or into another file'
        )
    for rule in (_of_form, _of_import, _of_launch, _of_store, _of_ctx, _of_name, _of_method):
        words = rule(failed)
        if words:
            return words
    return None


def _is_experiment(failed: Failed) -> bool:
    """Whether a call outside of every function is refused that makes no config."""
    if failed.function is not None or _CONFIG.search(failed.text) or _IN_CONFIG.search(failed.text):
        return False
    match failed.statement:
        case ast.Assign() | ast.Expr() | ast.For() | ast.Assert() as statement:
            return any(isinstance(one, ast.Call) for one in ast.walk(statement))
    return False


def _of_form(failed: Failed) -> str | None:
    """Parts of the language that are missing: an import, a decorator, a store."""
    found = _ANNOTATION.search(failed.text)
    if found and found[1] in IMPORTS:
        return f"`{found[1]}` is not imported: `{IMPORTS[found[1]]}`"
    lacks = re.search(r"it holds functions with @staticmethod", failed.text)
    if lacks and failed.function and not failed.function.decorator_list:
        return f"`@staticmethod` is missing above `{failed.function.name}`"
    if re.search(r"its kernel stores nothing", failed.text):
        return "a kernel gives nothing back to host code: its result leaves it by `tl.store` alone"
    return None


def _of_import(failed: Failed) -> str | None:
    found = _IMPORT.search(failed.text)
    if found:
        module = found[1].partition(".")[0]
        return f"a lab file may not import `{module}`: what is graded needs none of it"
    found = _FROM.search(failed.text)
    if not found:
        return None
    module, name = found[1], found[2]
    given = failed.given.get(module)
    if given:
        known = [one.name for one in given.functions]
        known += [
            target.id
            for one in given.tree.body
            if isinstance(one, ast.Assign)
            for target in one.targets
            if isinstance(target, ast.Name)
        ]
        near = nearest(name, known)
        if name in known:
            return f"a lab file may not import `{name}` from `{module}`: only functions and plain numbers"
        return f"`{module}.py` has no `{name}`" + (f"; the nearest name is `{near}`" if near else "")
    return f"a lab file may not import `{name}` from `{module}`"


def _of_launch(failed: Failed) -> str | None:
    if _NO_GRID.search(failed.text):
        return (
            "a kernel is launched with its grid in square brackets, before the parentheses: "
            "`kernel[grid](...)`"
        )
    option = _CONFIG.search(failed.text)
    if option and (near := nearest(option[1], OPTIONS)):
        return f"`triton.Config` has no `{option[1]}`; it is called `{near}`"
    if option:
        return (
            "`triton.Config` takes the constants of a kernel as a dict: "
            '`triton.Config({"BLOCK": 64}, num_warps=4)`'
        )
    found = _LAUNCHED.search(failed.text) or _IN_CONFIG.search(failed.text)
    if not found:
        return None
    name, launch = found[1], failed.launch()
    if launch:
        return of_keyword(f"the kernel `{launch[0].name}`", parameters(launch[0]), name)
    plain = _function_launched(failed)
    if plain is not None:
        return f"`{plain.name}` is launched and is no kernel: `@triton.jit` is missing above it"
    every = [one for kernel in failed.source.kernels.values() for one in parameters(kernel)]
    near = nearest(name, every)
    return f"no kernel here has a parameter `{name}`" + (f"; the nearest name is `{near}`" if near else "")


def _function_launched(failed: Failed) -> ast.FunctionDef | None:
    for call in failed.calls():
        match call.func:
            case ast.Subscript(value=ast.Name(id=name)) if name not in failed.source.kernels:
                return failed.source.defined(name)
    return None


def _of_store(failed: Failed) -> str | None:
    found = _STORED.search(failed.text)
    if not found:
        return None
    if failed.in_kernel:
        return f"a pointer is not indexed: `tl.store({found[1]} + {found[2]}, value, mask=...)` writes there"
    return f"host code stores nothing to a tensor: a kernel writes `{found[1]}`"


def _of_ctx(failed: Failed) -> str | None:
    found = _OF_CTX.search(failed.text)
    near = nearest(found[1], ("saved_tensors", "save_for_backward", "needs_input_grad")) if found else None
    if found and near:
        return f"`ctx` has no `{found[1]}`; the name is `ctx.{near}`"
    if found:
        return (
            f"nothing sets `ctx.{found[1]}`: `forward` must put it there, or save it with `save_for_backward`"
        )
    return None


def _of_name(failed: Failed) -> str | None:
    found = _PART.search(failed.text) or _NAME.search(failed.text)
    if not found:
        return None
    full = found[1]
    root, _, rest = full.partition(".")
    name = rest.partition(".")[0]
    if root == "tl" and name and name not in public("triton.language"):
        return of_triton(name)
    if root == "tl" and name in IN_TRITON:
        return f"`tl.{name}` is no function; {IN_TRITON[name]}"
    if root == "triton" and name and name not in public("triton"):
        near = nearest(name, public("triton"))
        return f"`triton` has no `{name}`" + (f"; the name is `triton.{near}`" if near else "")
    if root == "torch" and failed.in_kernel:
        has = name in public("triton.language") or name in IN_TRITON
        instead = IN_TRITON.get(name) or f"Triton has `tl.{name}`"
        return f"a kernel cannot call torch{f': {instead}' if has else ''}"
    if root == "torch" and name in ("rand", "randn", "randint", "manual_seed", "seed", "randperm"):
        return f"`{full}` draws random numbers, and an answer may depend on its arguments alone"
    if root == "torch" and failed.function and name:
        return f"`{full}` would compute in host code: what is graded is that a kernel does it"
    if root == "math" and name and name not in public("math"):
        near = nearest(name, public("math"))
        return f"`math` has no `{name}`" + (f"; the nearest name is `{near}`" if near else "")
    return None


def _of_method(failed: Failed) -> str | None:
    found = _METHOD.search(failed.text)
    if not found:
        return None
    name, place = found[1], found[2]
    if place == "a kernel":
        if name in OF_A_BLOCK or nearest(name, public("tl.tensor")):
            return of_a_block(name)
        return f"a block in a kernel has no `.{name}`: methods of torch's tensors are not those of a block"
    if name in ("save_for_backward", "saved_tensors") and failed.function:
        return (
            f"`{failed.function.name}` has no parameter `ctx`: it is the first one of `forward` "
            "and of `backward`"
            if "ctx" not in parameters(failed.function)
            else None
        )
    statement = failed.statement
    for node in ast.walk(statement) if statement else ():
        match node:
            case ast.Attribute(
                value=ast.Name(id="torch"), attr=("rand" | "randn" | "randint" | "randperm") as drawn
            ):
                return (
                    f"`torch.{drawn}` draws random numbers, and an answer may depend on its arguments alone"
                )
    if name in OF_A_TENSOR or name not in public("torch.Tensor"):
        return of_a_tensor(name)
    return f"`.{name}` would compute, or read values, in host code: what is graded is that a kernel does it"


RULES = (refused,)

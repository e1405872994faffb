"""Import kernels of the course on the tier of this machine, and run functions in a separate process."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from grader.course import catalog
from grader.course.tiers import DEFAULT_ARCH
from grader.system import gpu
from grader.system.processes import run_tool

LIMIT_S = 120.0
SEED = 1


def settle(found: gpu.Gpu | None) -> None:
    """Choose compiled kernels or Triton's interpreter; call it once, before Triton is imported.

    Without a GPU nothing can be timed, so an autotuned kernel takes one of its configs at random.
    """
    if found:
        return
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("Triton was imported before the first cell ran: restart the kernel, run all cells")
    os.environ["TRITON_INTERPRET"] = "1"
    from grader.codegen import absent_gpu
    from grader.worker.interpreted.known_builtins import remember_builtins
    from grader.worker.triton_settings import tune_by_chance

    remember_builtins()
    absent_gpu.install(DEFAULT_ARCH)
    tune_by_chance(SEED, runs_first=False)


def solution(file: str) -> ModuleType:
    """Import a file by its path below solutions/: lab1_elementwise_add/elementwise_add.py.

    Students have no solutions/; for them it is their own file below labs/.
    """
    return _module(_tree(), file)


def _tree() -> str:
    return "solutions" if (catalog.ROOT / "solutions").is_dir() else "labs"


def lab(file: str) -> ModuleType:
    """Import a file by its path below labs/: your own kernels."""
    return _module("labs", file)


def production_slice() -> ModuleType:
    """Return lab 4's functions as one library, from solutions/ or, without it, from the student's files."""
    (entry,) = (one for one in catalog.find() if one.number == 4)
    name = f"{_tree()}.{entry.folder.name}"
    if _tree() == "solutions":
        return importlib.import_module(name)
    library = ModuleType(name)
    library.__path__ = [str(entry.folder)]
    library.__all__ = sorted(exercise.name for exercise in entry.lab.exercises)
    for exercise in entry.lab.exercises:
        setattr(library, exercise.name, getattr(lab(f"{entry.folder.name}/{exercise.file}"), exercise.name))
    return library


def _module(tree: str, file: str) -> ModuleType:
    """Import a file under its path as name, so a solution and a student's file of the same name can coexist.

    The file can import the modules beside it.
    """
    path = catalog.ROOT / tree / file
    if not path.is_file():
        raise FileNotFoundError(f"{tree}/{file} does not exist")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = f"{tree}.{file.removesuffix('.py').replace('/', '.')}"
    if name in sys.modules:
        return sys.modules[name]
    # One module for a file, also where another file imports it by its own name: a second one would register
    # its torch operators again, which frees those that the first one calls.
    imported = sys.modules.get(path.stem)
    if imported and getattr(imported, "__file__", None) == str(path):
        sys.modules[name] = imported
        return imported
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    sys.modules.setdefault(path.stem, module)
    specification.loader.exec_module(module)
    return module


def apart(function, *arguments: str, **environment: str) -> None:
    """Run a function in a separate Python process, in the course's folder, and print its output.

    Kernels are compiled there, not interpreted, unless `environment` says otherwise. The function must be
    self-contained: it imports what it uses, takes strings and prints its result. RuntimeError if it fails.
    """
    text = textwrap.dedent(inspect.getsource(function))
    words = ", ".join(map(repr, arguments))
    own = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    own |= {"PYTHONPATH": str(catalog.ROOT)} | environment
    command = [sys.executable, "-c", f"{text}\n{function.__name__}({words})"]
    done = run_tool(command, LIMIT_S, cwd=catalog.ROOT, env=own)
    if done.code:
        raise RuntimeError(f"{function.__name__} failed: {done.complaint[-2000:]}")
    print(done.text.replace(f"{Path(catalog.ROOT)}{os.sep}", ""), end="")

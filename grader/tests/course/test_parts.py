"""Which of a student's other files a file imports."""

import pytest

from grader.course import catalog
from grader.course.parts import parts_of
from grader.course.submission import Submission

FILES = ("a.py", "b.py", "c.py")


def parts(folder, text, **others):
    for name, source in others.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "main.py").write_text(text)
    found = parts_of(Submission.read(folder / "main.py"), FILES, Submission.read)
    return {part.module: set(part.names) for part in found}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import torch\n", {}),
        ("from a import f, g\n", {"a": {"f", "g"}}),
        ("from a import f as other\n", {"a": {"f"}}),
        ("import a\nx = a.f(1) + a.g\n", {"a": {"f", "g"}}),
        ("import a as b2\nx = b2.f\n", {"a": {"f"}}),
        ("import a\n", {"a": set()}),
        ("def f():\n    from b import g\n", {"b": {"g"}}),
        ("from d import f\n", {}),  # may not be imported: the screen says so
        ("from .a import f\n", {}),
        ("from a import f\nfrom b import g\n", {"a": {"f"}, "b": {"g"}}),
        ("this is not Python", {}),
    ],
)
def test_imports_of_one_file(tmp_path, text, wanted):
    assert parts(tmp_path, text, a="def f(): pass\n", b="def g(): pass\n") == wanted


def test_what_an_imported_file_imports_comes_before_it(tmp_path):
    found = parts(tmp_path, "from c import h\n", c="from a import f\n", a="from b import g\n", b="")
    # a may import only what is listed before it, so its import of b is none.
    assert found == {"a": {"f"}, "c": {"h"}}
    assert list(found) == ["a", "c"]


def test_a_file_that_is_missing_is_a_part_with_an_obstacle(tmp_path):
    (tmp_path / "main.py").write_text("from a import f\n")
    (part,) = parts_of(Submission.read(tmp_path / "main.py"), FILES, Submission.read)
    assert part.submission.obstacle
    assert part.functions == frozenset()


def test_a_lab_names_only_files_that_it_has(tmp_path):
    lab = next(entry for entry in catalog.find() if entry.lab.imports).lab
    for file, others in lab.imports.items():
        for at, other in enumerate(others):
            # Each file comes before those that import it.
            assert set(lab.imports.get(other, ())) <= set(others[:at]), (file, other)
    folder = tmp_path / "lab9_x"
    folder.mkdir()
    text = """
import dataclasses
from grader.course import catalog
LAB = catalog.load(catalog.ROOT / "labs" / "lab1_elementwise_add" / "lab.py").lab
LAB = dataclasses.replace(LAB, imports={"elementwise_add.py": ("x.py",)})
"""
    (folder / "lab.py").write_text(text)
    with pytest.raises(ValueError, match="no exercise's file"):
        catalog.load(folder / "lab.py")

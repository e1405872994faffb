"""Entries that are made to get at files of others, to end the run of a class, or to write into its logs."""

import subprocess
from pathlib import Path

import pytest

from grader.tests.classroom.hand_in_files import FILE, UNIT, collected, write

SCRIPTS = sorted((Path(__file__).parent / "hostile_entries").glob("*.sh"))
REFUSED = {"entries_with_unexpected_errors": "damaged", "siblings_of_a_neighbour": "borrows from another"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_hostile_entry_is_refused_or_read_and_the_others_are_read(tmp_path, script):
    """Each script makes the entry `mallory` in a folder of submissions; its first line says what it tries."""
    folder = tmp_path / "in"
    write(folder / "ada" / "labs" / UNIT / FILE, "ada's")
    subprocess.run(["bash", script, folder], check=True)
    mallory, ada = (collected(folder, name) for name in ("mallory", "ada"))
    assert [file.path for file in ada.files] == [f"{UNIT}/{FILE}"]
    assert REFUSED.get(script.stem, "") in mallory.problem
    assert bool(mallory.problem) is (script.stem in REFUSED)
    own = (folder / "mallory").resolve()
    assert all(
        own in Path(file.source).resolve().parents for file in mallory.files if hasattr(file, "source")
    )
    assert mallory.problem.isprintable()

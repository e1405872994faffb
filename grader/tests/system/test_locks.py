"""The file lock: alone or shared, with a token and patience, on a file that may be another user's."""

import multiprocessing
import os
import tempfile
import threading
from pathlib import Path

import pytest

from grader.system.locks import FileLock, HeldError, is_held


def test_patience_ends_with_an_error_and_the_lock_is_still_held_by_the_first(tmp_path):
    path = tmp_path / "lock"
    with FileLock(path, token="first"):
        with pytest.raises(HeldError), FileLock(path, patience_s=0.2, token="second"):
            pytest.fail("two have it")
        assert is_held(path, "first")
        assert not is_held(path, "second")


def test_a_later_holder_changes_the_token_and_the_end_gives_the_lock_up(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path, "first")
    with FileLock(path, token="the first, a longer token"):
        pass
    assert not is_held(path, "the first, a longer token")
    with FileLock(path, token="second"):
        assert is_held(path, "second")
        assert not is_held(path, "the first, a longer token")
    assert path.read_text() == "second"


def test_those_who_share_it_keep_away_one_who_wants_it_alone(tmp_path):
    path = tmp_path / "lock"
    with (
        FileLock(path, shared=True),
        FileLock(path, shared=True, patience_s=0.1),
        pytest.raises(HeldError),
    ):
        FileLock(path, patience_s=0.1).__enter__()
    with FileLock(path, patience_s=0.1) as alone:
        assert alone.waited_s < 0.1


def test_who_waits_says_so_once_and_gets_the_lock_at_its_end(tmp_path, capfd):
    path, waited = tmp_path / "lock", []

    def second():
        with FileLock(path, waiting="waiting for the first") as held:
            waited.append(held.waited_s)

    with FileLock(path, waiting="waiting for nobody"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.5)
        assert waited == []
    thread.join(10)
    assert waited[0] > 0.3
    assert capfd.readouterr().err == "waiting for the first\n"


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        FileLock(tmp_path / "lock", token="x").__enter__()
    assert (tmp_path / "elsewhere").read_text() == "untouched"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_a_file_of_another_user_can_be_locked():
    def other(path):
        os.setuid(65534)
        with pytest.raises(PermissionError):
            path.write_text("")
        with FileLock(path):
            os._exit(7)

    with tempfile.TemporaryDirectory() as folder:  # tmp_path is closed to other users
        path = Path(folder, "lock")
        path.touch(0o644)
        os.chmod(folder, 0o755)
        process = multiprocessing.get_context("fork").Process(target=other, args=(path,))
        process.start()
        process.join(10)
    assert process.exitcode == 7

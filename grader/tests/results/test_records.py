"""A record is saved whole, and read with words for whoever made it."""

import json
import os
from typing import ClassVar

import pytest

from grader.results.machine import machine
from grader.results.records import Measurement, read


class Counted(Measurement):
    """A record of a command that counts."""

    made_by: ClassVar[str] = "make count"
    most_bytes: ClassVar[int] = 4096

    protocol: str = "one by one"
    count: int


@pytest.fixture
def path(tmp_path):
    Counted.begin("make count", None, None, count=3).save(tmp_path / "count.json")
    return tmp_path / "count.json"


def spoiled(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return path


def test_a_record_comes_back_as_it_was_saved(path):
    record = Counted.read(path)
    assert (record.count, record.protocol, record.machine) == (3, "one by one", machine(None, ""))
    assert record.where == f"{record.machine.words}, CUDA none, {record.date[:10]}"
    assert [one.name for one in path.parent.iterdir()] == ["count.json"]


@pytest.mark.parametrize(
    "fields", [{"schema_version": 2}, {"more": 1}, {"count": "many"}, {"machine": None}, {"date": 1}]
)
def test_what_is_no_such_record_is_said_with_the_command_that_makes_one(path, fields):
    with pytest.raises(ValueError, match=r"^mine/count\.json is not a record of make count: \w+"):
        Counted.read(spoiled(path, **fields), "mine/count.json")


def test_a_record_that_cannot_be_read_is_named(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        Counted.read(tmp_path / "none.json")
    with pytest.raises(ValueError, match=r"^count\.json has more than 4,096 bytes"):
        Counted.read(spoiled(path, command="x" * 5000))
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(ValueError, match=r"^link\.json is a link"):
        Counted.read(link)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match=r"^pipe\.json is not a regular file"):
        Counted.read(tmp_path / "pipe.json")


def test_what_the_system_refuses_is_said_without_a_path(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^mine ") as error:
        read(tmp_path / ("x" * 300), "mine", 10)
    assert str(tmp_path) not in str(error.value)

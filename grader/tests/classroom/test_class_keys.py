"""The keys of a run: one for seeds, which is published after the term, and one for seals, which never is."""

import os

import pytest

from grader.classroom import records
from grader.classroom.grading import run_secret
from grader.classroom.grading.run import Asked, AskedError, grade_class
from grader.classroom.records import Receipt
from grader.classroom.run_folder import RunFolder
from grader.results.machine import Machine

PUBLISHED = "a secret that is long enough"


def receipt(**more) -> Receipt:
    unit = records.Unit(name="lab1_elementwise_add", lab="1", title="t", max_points=100.0, exercises={})
    machine = Machine(gpu=None, platform="", python="", torch="", triton="", numpy="")
    return Receipt(
        student="ada", unit=unit, attempt=1, date="", grader="", grader_sha256="", lab_sha256="",
        hidden_sha256=None, files={}, tier="cpu", keyword=None, arch=90, seed=1, seed_commitment="",
        machine=machine, assurance="", points=43.75, results_sha256="", rounds_sha256="", **more,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    (tmp_path / "given").write_text(PUBLISHED)
    return RunFolder(tmp_path / "out")


def test_whoever_has_the_published_secret_cannot_seal_a_receipt(run, tmp_path):
    keys = run_secret.load(run, tmp_path / "given")
    assert keys.seeds == run.secret.read_bytes() == PUBLISHED.encode()
    sealed = run_secret.sealed(keys, receipt())
    assert run_secret.seal(keys.seals, sealed) == sealed.seal
    forged = run_secret.seal(PUBLISHED.encode(), sealed.model_copy(update={"points": 100.0}))
    assert run_secret.seal(keys.seals, sealed.model_copy(update={"points": 100.0})) != forged
    assert PUBLISHED.encode() not in run.sealing_key.read_bytes()
    assert run.sealing_key.stat().st_mode & 0o777 == 0o600


def test_two_runs_with_one_secret_have_the_same_seeds_and_other_seals(tmp_path):
    (tmp_path / "given").write_text(PUBLISHED)
    one, two = (run_secret.load(RunFolder(tmp_path / name), tmp_path / "given") for name in "ab")
    assert run_secret.seed(one.seeds, "ada", "x", 1, False) == run_secret.seed(
        two.seeds, "ada", "x", 1, False
    )
    assert one.seals != two.seals


def test_a_run_that_was_begun_when_there_was_one_key_keeps_to_it(run):
    run.secret.parent.mkdir(parents=True)
    run.secret.write_text(PUBLISHED)
    keys = run_secret.load(run, None)
    assert keys.seals == keys.seeds == PUBLISHED.encode()
    assert not run.sealing_key.exists()
    assert run_secret.sealed(keys, receipt()).seal_commitment == ""


def test_a_field_that_a_later_grader_adds_to_receipts_breaks_no_seal_of_an_earlier_one():
    written = receipt().model_dump(mode="json", exclude={"seal_commitment", "measured_in", "measures_sha256"})
    earlier = Receipt.model_validate(written)
    dumped = (
        Receipt.model_validate(written).model_copy(update={"seal": ""}).model_dump_json(exclude_unset=True)
    )
    assert "seal_commitment" not in dumped
    key = PUBLISHED.encode()
    assert run_secret.seal(key, earlier) == run_secret.mac(key, "receipt", dumped).hex()


def test_a_lost_sealing_key_is_named_and_not_replaced(run):
    first = run_secret.load(run, None)
    run.sealing_key.unlink()
    with pytest.raises(ValueError, match=r"state/sealing-key is missing"):
        run_secret.load(run, None, run_secret.commitment(first.seals))


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_run_folder_is_readable_by_its_owner_alone_also_where_it_is_there(tmp_path, mask):
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    (out / "state").mkdir()  # as an earlier run left it
    before = os.umask(mask)
    try:
        for folder in (out, tmp_path / "new"):
            (tmp_path / "in").mkdir(exist_ok=True)
            with pytest.raises(AskedError, match="no submission"):
                grade_class(Asked(tmp_path / "in", folder), None)
            assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_a_folder_of_somebody_elses_files_keeps_its_mode_and_is_refused(tmp_path):
    out = tmp_path / "home"
    out.mkdir(mode=0o755)
    (out / "notes.txt").write_text("not ours")
    with pytest.raises(AskedError, match="no folder of a class run"):
        grade_class(Asked(tmp_path, out), None)
    assert out.stat().st_mode & 0o777 == 0o755

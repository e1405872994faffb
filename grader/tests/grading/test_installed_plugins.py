"""Plugins of pytest that a GPU image brings along do not end a run of this project's tests."""

from pathlib import Path

from grader.tests.helpers.commands import python

PLUGIN = """\
import warnings


def pytest_configure(config):
    warnings.warn("Benchmarks are automatically disabled because xdist plugin is active.")
"""


def test_pytest_benchmark_is_not_loaded(tmp_path: Path):
    """Under pytest-xdist it warns, and warnings are errors here."""
    (tmp_path / "benchmark_of_the_image.py").write_text(PLUGIN)
    metadata = tmp_path / "benchmark_of_the_image-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmark-of-the-image\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nbenchmark = benchmark_of_the_image\n")
    done = python("-m", "pytest", "-q", "--collect-only", __file__, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 test collected" in done.stdout

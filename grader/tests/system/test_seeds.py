"""Seeds: how many bits nobody can search, and what a worker learns of them."""

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from grader.results.models import Results
from grader.system import seeds

ROOT = Path(__file__).resolve().parents[3]


def test_a_drawn_seed_has_at_least_128_bits_that_no_worker_learns():
    drawn = [seeds.drawn() for _ in range(64)]
    assert len({one % 2**128 for one in drawn}) == 64
    assert max(one.bit_length() for one in drawn) > 128 + 24


@given(st.integers(0, 2**160 - 1), st.integers(0, 2**128 - 1))
def test_what_a_worker_learns_does_not_change_with_the_secret_bits(seed, other):
    high = seed >> 128 << 128
    assert seeds.for_a_worker(seed) == seeds.for_a_worker(high + other)


@given(st.integers(0, 2**128 - 1))
def test_a_worker_learns_nothing_of_a_seed_that_was_typed(seed):
    assert seeds.for_a_worker(seed) == 0


def test_no_module_of_the_worker_reads_the_seed_of_the_session_but_for_that():
    """The seed is an attribute of the session; what follows from it in a message would reach a worker."""
    found = []
    for path in sorted((ROOT / "grader" / "worker").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "seeds.for_a_worker":
                node.args = []
        found += [
            f"{path.name}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr == "seed" and isinstance(node.ctx, ast.Load)
        ]
    assert found == []


def test_records_keep_any_seed_as_it_was():
    for seed in (1, 4159748080, 2**160 - 1):
        assert Results.model_fields["seed"].annotation is int
        assert Results.model_construct(seed=seed).model_dump()["seed"] == seed

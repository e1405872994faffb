"""Facts from PTX and SASS: widths of loads, and the checks that decide on them."""

import pytest

from grader import catalog, codegen
from grader.codegen import CHECKS, SHARED_LIMIT, KernelFacts, check, load_widths, outcome
from grader.spec import Verdict


def kernel(**changes):
    facts = {
        "name": "matmul_kernel",
        "constants": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8},
        "num_warps": 8,
        "num_stages": 3,
        "shared_bytes": 147_456,
        "shared_limit": 227 * 1024,
        "registers": 168,
        "spill_bytes": 0,
        "tensor_core": "wgmma.mma_async",
        "async_copies": 12,
        "load_widths": (16,),
    }
    return KernelFacts(**{**facts, **changes})


@pytest.mark.parametrize(
    ("line", "widths"),
    [
        ("/*0100*/  LDG.E.128 R4, desc[UR4][R2.64] ;", (16,)),
        ("@!P0 LDG.E.64.CONSTANT R4, [R2.64] ;", (8,)),
        ("LDG.E R4, desc[UR4][R2.64] ;", (4,)),
        ("LDG.E.CONSTANT R4, desc[UR4][R2.64+0x10] ;", (4,)),
        ("LDG.E.U16 R4, desc[UR4][R2.64] ;", (2,)),
        ("LDG.E.S8.CONSTANT R4, desc[UR4][R2.64] ;", (1,)),
        ("LDG.E.EF.LTC128B.64 R4, desc[UR4][R2.64] ;", (8,)),
        ("LDG.E.LTC128B R4, desc[UR4][R2.64] ;", (4,)),
        ("LDGSTS.E.BYPASS.LTC128B.128 [R5], desc[UR4][R2.64], P0 ;", (16,)),
        ("LDG.E.ENL2.256 R4, R8, desc[UR4][R2.64] ;", (32,)),
        ("STG.E.128 desc[UR4][R2.64], R4 ;", ()),
        ("LDS.128 R4, [R2] ;\nLDL.64 R4, [R1] ;\nLDSM.16.M88.4 R4, [R2] ;", ()),
        ("UTMALDG.2D [UR8], [UR4] ;", ()),
        ("", ()),
    ],
)
def test_width_of_a_load_is_read_from_its_suffix(line, widths):
    assert load_widths(line) == widths


def test_widths_come_once_each_and_widest_first():
    lines = "LDG.E.U16 R1, [R2] ;\nLDG.E.128 R4, [R2] ;\nLDG.E R8, [R2] ;\nLDG.E.128 R12, [R2] ;\n"
    assert load_widths(lines) == (16, 4, 2)


@pytest.mark.parametrize("name", CHECKS)
def test_sound_kernels_pass_every_check(name):
    passed, words = check(name, [kernel(), kernel(num_warps=4)])
    assert passed
    assert words


@pytest.mark.parametrize("name", CHECKS)
def test_no_kernel_fails_every_check(name):
    assert check(name, []) == (False, "the call launched no Triton kernel")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tensor cores", {"tensor_core": ""}, "1 of 2 configs use wgmma.mma_async"),
        ("no spills", {"spill_bytes": 24}, "1 of 2 configs spill"),
        ("wide loads", {"load_widths": (8, 4)}, "widest global load 8 bytes a thread"),
        ("shared memory", {"shared_bytes": 227 * 1024 + 1}, "at most 227 of 227 KB"),
    ],
)
def test_one_bad_config_fails_its_check_and_is_named(name, changes, words):
    passed, found = check(name, [kernel(), kernel(num_warps=4, **changes)])
    assert not passed
    assert found.startswith(words)
    assert found.endswith("128x256x64, 4 warps, 3 stages")
    assert [other for other in CHECKS if not check(other, [kernel(**changes)])[0]] == [name]


def test_config_that_spills_most_is_the_one_named():
    kernels = [kernel(spill_bytes=8, num_warps=16), kernel(spill_bytes=640, num_warps=4), kernel()]
    _, words = check("no spills", kernels)
    assert "2 of 3" in words
    assert "640 bytes" in words
    assert "4 warps" in words


def test_kernel_without_global_loads_has_no_narrow_one():
    assert check("wide loads", [kernel(load_widths=())])[0]


def test_kernel_may_use_all_of_its_shared_memory():
    assert check("shared memory", [kernel(shared_bytes=227 * 1024)])[0]


def test_config_shows_the_constants_where_there_is_no_tile():
    assert kernel(constants={"BLOCK": 1024, "num_warps": 8}).config == "BLOCK=1024, 8 warps, 3 stages"
    assert kernel(constants={}).config == "8 warps, 3 stages"


@pytest.mark.parametrize(
    ("arch", "kilobytes"), [(75, 64), (80, 163), (86, 99), (89, 99), (90, 227), (100, 227), (120, 99)]
)
def test_shared_memory_of_an_architecture_is_that_of_the_programming_guide(arch, kilobytes):
    assert SHARED_LIMIT[arch] == kilobytes


def graded_checks():
    return [
        (entry.lab, name)
        for entry in catalog.find()
        for exercise in entry.lab.exercises
        for name in (exercise.codegen.checks if exercise.codegen else ())
    ]


def test_checks_with_points_exist():
    assert graded_checks()
    assert {name for _, name in graded_checks()} <= set(CHECKS)


@pytest.mark.parametrize(("lab", "name"), graded_checks(), ids=lambda value: getattr(value, "title", value))
def test_failed_check_earns_nothing_and_cites_the_cause_of_the_lab(lab, name):
    found = outcome(lab, name, False, "1 of 2", [kernel()])
    assert (found.verdict, found.share) == (Verdict.WRONG, 0.0)
    assert (found.hint, found.cause) == lab.causes[codegen.SIGNS[name]]


def test_outcome_carries_the_facts_without_listings():
    lab, name = graded_checks()[0]
    found = outcome(lab, name, True, "2 of 2", [kernel(ptx="// ptx", sass="// sass")])
    (facts,) = found.figures["kernels"]
    assert (found.verdict, found.share, found.hint) == (Verdict.PASS, 1.0, None)
    assert facts["config"] == "128x256x64, 8 warps, 3 stages"
    assert not {"ptx", "sass"} & set(facts)

"""Facts from PTX and SASS: widths of loads, configs, and limits."""

import pytest

from grader.codegen.kernel_facts import SHARED_LIMIT, config_of, load_widths


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


def test_config_shows_the_constants_where_there_is_no_tile():
    assert config_of({"BLOCK": 1024, "num_warps": 8}, 8, 3) == "BLOCK=1024, 8 warps, 3 stages"
    assert config_of({}, 8, 3) == "8 warps, 3 stages"


@pytest.mark.parametrize(
    ("arch", "kilobytes"), [(75, 64), (80, 163), (86, 99), (89, 99), (90, 227), (100, 227), (120, 99)]
)
def test_shared_memory_of_an_architecture_is_that_of_the_programming_guide(arch, kilobytes):
    assert SHARED_LIMIT[arch] == kilobytes


def test_config_of_cuda_is_empty_as_the_launch_alone_knows_it():
    assert config_of({}, 0, 0) == ""

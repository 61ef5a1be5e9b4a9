"""Numbers and shares as text."""

from costprobe.core.units import percent, significant


def test_only_extreme_numbers_have_an_exponent():
    written = {
        0.0: "0",
        0.00002683: "0.00002683",
        0.3251: "0.3251",
        -12.345: "-12.35",
        10_871.4: "10,871",
        42_949_672_960.0: "42,949,672,960",
        1e-12: "1e-12",
        2.5e15: "2.5e+15",
    }
    assert {value: significant(value) for value in written} == written
    assert significant(1_987.6, 3) == "1,988"


def test_a_share_that_rounds_to_nothing_has_no_minus():
    shown = [percent(share, 1) for share in (-0.0004, -0.004, 0.125)]
    assert shown == ["0.0 %", "-0.4 %", "12.5 %"]
    assert [percent(share) for share in (0.13, 0.004, 0.996)] == ["13 %", "0.4 %", "99.6 %"]

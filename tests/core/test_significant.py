"""Numbers with significant digits as text."""

from costprobe.core.units import significant


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

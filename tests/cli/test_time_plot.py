"""Curves over time as braille dots, within their frame whatever the numbers are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.time_plot import Curve, time_plot

HOUR_NS = 3_600_000_000_000


def plot(*curves, columns=60, rows=8, looks=None):
    made = [
        Curve([HOUR_NS * hour for hour in range(len(values))], values, *look)
        for values, look in zip(curves, looks or [()] * len(curves), strict=True)
    ]
    return time_plot("power_w", made, columns, rows, lambda time_ns: f"{time_ns // HOUR_NS} h")


def test_a_rising_line_rises_and_its_scale_is_told():
    lines = plot([0.0, 1.0], columns=40, rows=4).splitlines()
    assert lines[0].strip() == "power_w"
    inside = [line[12:-1] for line in lines[2:6]]
    first_dots = [len(line) - len(line.lstrip()) for line in inside]
    assert first_dots == sorted(first_dots, reverse=True)
    assert inside[0].rstrip()[-1] != " "
    assert inside[-1][0] != " "
    assert lines[2].startswith("          1┤")
    assert lines[5].startswith("          0┤")
    assert lines[-1].split() == ["0", "h", "0", "h", "0", "h", "0", "h", "1", "h"]


def test_one_outlier_does_not_draw_the_curve():
    many = [10.0] * 5_000
    many[2_500] = 1e9
    assert "1e+09" not in plot(many)


def test_curves_are_told_apart_by_their_markers_or_their_colours():
    text = plot([1.0, 1.0], [2.0, 2.0], looks=[("x",), ("o",)])
    assert text.count("x") == text.count("o") - "power_w".count("o") == 60 - 13
    coloured = plot([1.0, 1.0], [2.0, 2.0], looks=[("braille", "red"), ("braille", "blue")])
    assert coloured.count("\x1b[31m") == coloured.count("\x1b[34m") == 60 - 13


def test_where_curves_meet_the_last_is_on_top():
    assert "x" not in plot([1.0, 1.0], [1.0, 1.0], looks=[("x",), ("o",)])


@pytest.mark.parametrize("columns", [1, 20, 80, 200])
@pytest.mark.parametrize(
    "values", [[5.0], [0.0, 0.0], [-1.234e-5, -1.2e-5], [-1.7e308, 1.7e308], [1e-300, 2e-300]]
)
def test_any_width_and_any_numbers_make_a_frame(columns, values):
    lines = plot(values, columns=columns).splitlines()
    assert len({len(line) for line in lines[1:11]}) == 1
    assert any(0x2800 < ord(letter) < 0x2900 for line in lines for letter in line)


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300),
        min_size=1,
        max_size=4,
    )
)
def test_no_finite_numbers_break_it(curves):
    lines = plot(*curves).splitlines()
    assert len(lines) == 8 + 4

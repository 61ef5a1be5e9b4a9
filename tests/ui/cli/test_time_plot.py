"""Curves over time as braille dots, within their frame for any values."""

import pytest
from costprobe.ui.cli.views.plots import PlotCurve, time_plot
from hypothesis import example, given
from hypothesis import strategies as st

HOUR_NS = 3_600_000_000_000


def plot(*curves, columns=60, rows=8, looks=None):
    made = [
        PlotCurve([HOUR_NS * hour for hour in range(len(values))], values, *look)
        for values, look in zip(curves, looks or [()] * len(curves), strict=True)
    ]
    return time_plot("power_w", made, columns, rows, lambda time_ns: f"{time_ns // HOUR_NS} h")


def test_rising_curve_is_drawn_with_its_scale():
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


def test_single_outlier_does_not_flatten_the_curve():
    many = [10.0] * 5_000
    many[2_500] = 1e9
    assert "1e+09" not in plot(many)


def test_curves_differ_in_marker_or_colour():
    text = plot([1.0, 1.0], [2.0, 2.0], looks=[("x",), ("o",)])
    assert text.count("x") == text.count("o") - "power_w".count("o") == 60 - 13
    coloured = plot([1.0, 1.0], [2.0, 2.0], looks=[("braille", "red"), ("braille", "blue")])
    assert coloured.count("\x1b[31m") == coloured.count("\x1b[34m") == 60 - 13


def test_last_curve_is_on_top_where_curves_overlap():
    assert "x" not in plot([1.0, 1.0], [1.0, 1.0], looks=[("x",), ("o",)])


@pytest.mark.parametrize("columns", [1, 20, 80, 200])
@pytest.mark.parametrize(
    "values", [[5.0], [0.0, 0.0], [-1.234e-5, -1.2e-5], [-1.7e308, 1.7e308], [1e-300, 2e-300]]
)
def test_any_width_and_values_keep_the_frame(columns, values):
    lines = plot(values, columns=columns).splitlines()
    assert len({len(line) for line in lines[1:11]}) == 1
    assert any(0x2800 < ord(letter) < 0x2900 for line in lines for letter in line)


@example([[0.0, 2.225073858507203e-309]])
@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300),
        min_size=1,
        max_size=4,
    )
)
def test_every_finite_value_is_drawn(curves):
    lines = plot(*curves).splitlines()
    assert len(lines) == 8 + 4

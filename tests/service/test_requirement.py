"""What the installation asks pip for."""

import pytest

from agent.cli.service_venv import with_page


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("infercost==0.1.0", "infercost[dashboard]==0.1.0"),
        ("infercost", "infercost[dashboard]"),
        ("infercost>=1,<2", "infercost[dashboard]>=1,<2"),
        ("infercost[dashboard,forecast]==1", "infercost[dashboard,forecast]==1"),
        ("infercost @ https://h/x.whl", "infercost[dashboard] @ https://h/x.whl"),
    ],
)
def test_a_requirement_gets_what_the_page_needs(source, asked):
    assert with_page(source) == asked


def test_a_tree_or_a_wheel_too(tmp_path):
    assert with_page(str(tmp_path)) == f"{tmp_path}[dashboard]"

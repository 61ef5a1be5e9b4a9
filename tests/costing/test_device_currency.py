"""A row of `device` tells what currency its cost is in, so that no two are ever added."""

from agent.costing.points import device_point
from agent.model import Device, Reading
from agent.pricing.assumed import assumed_rate
from agent.pricing.book import PriceBook, Terms

GPU = Device("gpu0", "gpu", "GPU-1", "NVIDIA L4")
READING = Reading("gpu0", 0, 10_000_000_000, {"power_w": 60.0, "energy_j": 600.0})


def test_a_priced_device_names_its_currency():
    terms = PriceBook([], None, [GPU]).terms("gpu0", 1)
    assert isinstance(terms, Terms)
    row = device_point(READING, GPU, terms, {"host": "h"}, 1)
    assert row.tags["currency"] == assumed_rate(GPU, 1).currency == "USD"
    assert row.fields["cost"] > 0


def test_a_device_without_a_price_has_none():
    row = device_point(READING, GPU, None, {"host": "h"}, 1)
    assert "currency" not in row.tags
    assert "cost" not in row.fields

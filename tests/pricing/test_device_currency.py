"""A `device` row has the currency of its cost, so that currencies are never summed."""

from costprobe.core.records import Device, Reading
from costprobe.devices.charges import charges_of, device_point
from costprobe.pricing.assumed import AssumedPrices
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.catalogue_files import packaged

GPU = Device("gpu0", "gpu", "GPU-1", "NVIDIA L4")
READING = Reading("gpu0", 0, 10_000_000_000, {"power_w": 60.0, "energy_j": 600.0})


def test_priced_device_has_a_currency():
    terms = PriceBook([], None, [GPU], AssumedPrices(lambda _: packaged())).terms("gpu0", 1)
    assert isinstance(terms, Terms)
    (charge,) = charges_of(lambda _: terms, 0, READING.end_ns, lambda *_: 600.0)
    row = device_point(READING, GPU, charge, {"host": "h"}, 1)
    assert row.tags["currency"] == terms.rate.currency == "USD"
    assert row.fields["cost"] > 0


def test_device_without_a_price_has_no_currency():
    row = device_point(READING, GPU, None, {"host": "h"}, 1)
    assert "currency" not in row.tags
    assert "cost" not in row.fields

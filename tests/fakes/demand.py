"""The benchmark's seeded production of a service, for tests."""

import demand
import fakes.bench  # noqa: F401 - the path

__all__ = ["demand"]

"""The benchmark's generator of streams, for tests."""

import fakes.bench  # noqa: F401 - the path
from streams import (
    START_S,
    STEP_S,
    VALUES_PER_DAY,
    Recipe,
    generate,
    shifted_recipe,
    stationary_recipes,
)

__all__ = [
    "START_S",
    "STEP_S",
    "VALUES_PER_DAY",
    "Recipe",
    "generate",
    "shifted_recipe",
    "stationary_recipes",
]

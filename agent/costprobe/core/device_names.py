"""Names of devices."""

from typing import Final

# Separator between the names of devices that are measured and priced as a group.
TOGETHER: Final = "+"

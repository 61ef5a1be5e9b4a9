"""Open a store and count its points; if started as root, as an unprivileged user."""

import os
import sys
import urllib.parse  # noqa: F401 - pathlib imports it at its use, when that user may not read it
from pathlib import Path

from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.read import StoreReader

UNPRIVILEGED_ID = 65534

if os.getuid() == 0:
    os.setgroups([])
    os.setegid(UNPRIVILEGED_ID)
    os.seteuid(UNPRIVILEGED_ID)
try:
    reader = StoreReader.open(Path(sys.argv[1]))
    print(len(list(reader.points("device", 0, 2**62))))  # noqa: T201 - read by the test
    reader.close()
except StoreError as error:
    print(error)  # noqa: T201 - read by the test

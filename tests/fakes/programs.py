"""Programs that tests need and a machine may lack."""

import os
import shutil

import pytest


def skip_unless(holds, reason):
    """Skip a test without what it needs; fail in CI, which has it."""
    if not holds:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def require(*programs):
    """Skip a test whose programs are not installed; fail in CI. Return the path of the first."""
    missing = [program for program in programs if shutil.which(program) is None]
    names = ", ".join(missing)
    skip_unless(not missing, f"not installed: {names}; on Debian: make test as root installs it")
    return shutil.which(programs[0])

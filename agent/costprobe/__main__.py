"""`python -m costprobe` is `costprobe`."""

from costprobe.ui.cli.main import main

main()

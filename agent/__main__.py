"""`python -m agent` is `infercost`."""

from agent.cli.main import main

main()

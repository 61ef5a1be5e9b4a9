"""The catalogue's files: those of the package, and newer ones that the operator installed."""

"""Cost of production traffic: windows, allocation and points."""

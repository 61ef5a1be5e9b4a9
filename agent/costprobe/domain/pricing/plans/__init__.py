"""The kinds of price plan, one file for each."""

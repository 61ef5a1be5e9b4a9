"""Alert rules over the series, and their incidents."""

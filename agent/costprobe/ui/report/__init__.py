"""The report: what inference cost in a period, for people who decide about money."""

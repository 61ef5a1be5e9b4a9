"""Detection and alert rules over new rows."""

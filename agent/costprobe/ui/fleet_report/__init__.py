"""The report of a fleet: one page for a manager, as HTML or Markdown."""

"""Right-sizing hints: cheaper alternatives, with evidence and the saving per month."""

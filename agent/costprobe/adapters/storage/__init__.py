"""The store: every point is committed here before anything is sent."""

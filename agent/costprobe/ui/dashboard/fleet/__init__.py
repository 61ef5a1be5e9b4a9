"""The page of a fleet: its figures, asked of the fleet's database in the background, and its server."""

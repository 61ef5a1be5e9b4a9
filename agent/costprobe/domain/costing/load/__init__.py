"""A load curve: cost, speed and service level of a server by its load."""

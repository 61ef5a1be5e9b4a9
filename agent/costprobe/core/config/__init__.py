"""Configuration files: types of values, the loader with all errors at once, and the root model."""

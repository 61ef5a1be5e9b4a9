"""Configuration: field types, sections, loading and error reports."""

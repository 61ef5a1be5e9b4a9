"""Controlled inferences on the device under test; depends on torch and the standard library alone."""

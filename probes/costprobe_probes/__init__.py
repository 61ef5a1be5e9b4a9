"""Controlled inferences on the device under test; depends only on torch and the standard library."""

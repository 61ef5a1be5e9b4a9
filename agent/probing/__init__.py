"""Probe children: asked to run, watched, and reported on; torch stays on their side."""

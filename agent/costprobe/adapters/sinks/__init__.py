"""Sinks: where the stored series are sent, and how they are delivered."""

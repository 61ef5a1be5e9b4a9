"""costprobe: what one inference costs on this host, now, and why it changed."""

__version__ = "0.1.0"

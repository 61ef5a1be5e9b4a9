"""The `[http]` pages: health, status and metrics."""

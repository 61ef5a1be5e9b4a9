"""A run of a probe in a child process, and what the child reports, validated."""

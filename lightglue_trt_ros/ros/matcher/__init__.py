"""The matcher node."""

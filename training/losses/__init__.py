"""The losses of the networks, one a file."""

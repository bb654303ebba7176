"""The networks as they are trained."""

"""Degraded images, and what stands still in the images of a moving camera."""

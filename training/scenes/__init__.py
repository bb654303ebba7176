"""Pairs of views of textured planes, with exact correspondences, made on the device in batches."""

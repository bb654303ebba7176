"""Predictions to figures: two-view geometry, trajectories, metrics and their confidence intervals."""

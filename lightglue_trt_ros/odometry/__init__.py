"""A reference consumer of the tracks: poses from a short window of views, metric where points have depth. No map, no loops."""

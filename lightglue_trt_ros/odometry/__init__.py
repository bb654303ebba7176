"""A reference consumer of the tracks: poses from a short window of views, no map, no loop closure. Metric where points have depth."""

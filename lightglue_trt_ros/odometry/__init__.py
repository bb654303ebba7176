"""Poses from tracks: two views, and a sliding window, metric where points have depth. No map, no loop closure."""

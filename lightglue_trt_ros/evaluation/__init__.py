"""How good correspondences are: two-view geometry, error metrics, baselines."""

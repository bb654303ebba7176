"""Recording to predictions: the scene, and the matchers that run over it."""

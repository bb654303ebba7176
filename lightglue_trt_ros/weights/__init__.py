"""The networks' weights: where they come from, how they are checked, and how they are read without PyTorch."""

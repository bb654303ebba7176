"""What the networks are trained for, one loss a file."""

"""What writes files of this repository from its code: python -m tools.NAME, or make NAME."""

"""FP8 for the matcher: calibrated on a recording, kept only when it keeps the matches. See docs/fp8.md."""

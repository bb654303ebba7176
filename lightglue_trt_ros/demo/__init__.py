"""What `make demo` runs: a recording through the real node over DDS, held against the truth."""

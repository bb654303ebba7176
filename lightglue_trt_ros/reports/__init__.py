"""What an evaluation found, for people and for programs: one page, pictures, a table on the terminal, JSON, a gate for CI."""

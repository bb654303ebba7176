"""A rendered flight, and the page that shows how well its frames match."""

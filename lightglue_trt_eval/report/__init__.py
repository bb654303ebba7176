"""An evaluation as JSON, as a page and as pictures."""

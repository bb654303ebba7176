"""Errors, files, processes and the console."""

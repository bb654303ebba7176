"""Recordings (bags and image folders), calibrations, ground truth, and a rendered flight."""

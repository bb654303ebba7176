"""Recordings (bags and image folders), calibrations and ground truth."""

"""What an evaluation found, for people and for programs: one page, pictures, a table on the terminal, JSON, a gate for CI."""

from __future__ import annotations

from .document import read_report
from .page import write_report
from .requirements import Requirement, check
from .summary import print_summary

__all__ = ['Requirement', 'check', 'print_summary', 'read_report', 'write_report']

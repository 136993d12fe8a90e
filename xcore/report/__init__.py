"""A run as one page: what was done to which data, how good the result is, and what it cost."""

from xcore.report.page import render_report

__all__ = ["render_report"]

"""A study as one HTML file that asks nobody for anything: no script, no font, no picture from elsewhere."""

from tuner.report.page import page
from tuner.report.writing import write

__all__ = ["page", "write"]

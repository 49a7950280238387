"""The fairness report: runs, studies and kept results as one HTML page that opens from disk."""

from adafed.page.gather import Named, describe_study, gathered
from adafed.page.html import page, write_page
from adafed.page.model import Report

__all__ = ["Named", "Report", "describe_study", "gathered", "page", "write_page"]

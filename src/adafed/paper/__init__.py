"""What the AdaFed paper prints, and which of it can be true."""

from adafed.paper.audit import audit
from adafed.paper.numbers import Number, PrintedTable, best, grid, grids, setups, table, tables, value

__all__ = ["Number", "PrintedTable", "audit", "best", "grid", "grids", "setups", "table", "tables", "value"]

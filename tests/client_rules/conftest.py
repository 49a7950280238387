"""Lets the tests here share `quadratics`, and name its model in configurations."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""Lets the tests here import `published`, which writes small files in each published format."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

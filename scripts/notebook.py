"""Writes examples/quickstart.ipynb from examples/quickstart.py, whose cells begin with `# %%`: one text, two forms.

python scripts/notebook.py            # write, without outputs; a test runs it
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def notebook(script: str) -> nbformat.NotebookNode:
    """Each cell of the script as a cell; comments of a markdown cell as text."""
    cells = []
    for number, part in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:]):
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [re.sub(r"^# ?", "", line) for line in body.strip().splitlines()]
            cell = nbformat.v4.new_markdown_cell("\n".join(lines))
        else:
            cell = nbformat.v4.new_code_cell(body.strip())
        cell["id"] = f"cell-{number}"
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def main() -> None:
    made = notebook((EXAMPLES / "quickstart.py").read_text())
    nbformat.write(made, EXAMPLES / "quickstart.ipynb")
    print(f"wrote {EXAMPLES / 'quickstart.ipynb'}: {len(made.cells)} cells")


if __name__ == "__main__":
    main()

"""Runs each notebook and stores its output, except stderr, which has warnings of this machine.

01, 02, 04 and 06 read the lake of `make demo`, 05 its Kafka (`KEEP=1 make demo`), 03 the recording of `make notebooks`.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"


def main() -> int:
    """Returns the exit status. Raises nbclient's CellExecutionError if a cell fails; that notebook is not changed."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        about = dict(notebook.metadata)
        NotebookClient(
            notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(NOTEBOOKS)}}
        ).execute()
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        notebook.metadata = about  # not the version of this Python
        file.write_text(nbformat.writes(notebook).replace(f"{ROOT}/", "") + "\n", encoding="utf-8")
        print(file.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

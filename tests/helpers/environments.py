"""Python environments for single tests."""

import subprocess
import venv
from pathlib import Path

TIMEOUT_S = 280


def python_with(folder: Path, *options: str | Path) -> Path:
    """The python of a new environment in `folder`, in which pip was run with these options."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, *options], check=True, timeout=TIMEOUT_S)
    return python

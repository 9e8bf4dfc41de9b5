"""Python environments of a test's own."""

import subprocess
import venv
from pathlib import Path

TIMEOUT_S = 280


def python_with(folder: Path, *options: str | Path) -> Path:
    """The python of a new environment in `folder`, in which pip has installed what the options say."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, *options], check=True, timeout=TIMEOUT_S)
    return python

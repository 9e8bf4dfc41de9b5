"""The wheel, as `make wheel` builds it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def built_wheel(folder: Path) -> Path:
    """The wheel, built below `folder` from a copy of the sources, because setuptools leaves files beside them."""
    copy = folder / "laglake"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("build", "dist", ".*", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = (copy / "dist").iterdir()
    return file

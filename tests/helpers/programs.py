"""Programs that stand in for real ones."""

from pathlib import Path


def write_program(path: Path, body: str) -> None:
    """Writes a script of bash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)

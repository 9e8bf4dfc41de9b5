"""Programs of the machine that a few tests need, and no package brings along."""

import shutil

import pytest


def tool(*names: str) -> str:
    """The path of the first of the programs that is there. A test that needs one fails without: it proves nothing."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.fail(f"none of {', '.join(names)} is on PATH: install one, or leave these tests out with -m 'not tool'")
    return found

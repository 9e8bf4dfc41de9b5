"""Programs that a few tests need, and that are not in any Python package."""

import shutil

import pytest


def tool(*names: str) -> str:
    """The path of the first of these programs that exists. Without one, the test fails, because it proves nothing."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.fail(f"none of {', '.join(names)} is on PATH: install one, or leave these tests out with -m 'not tool'")
    return found

"""The names that `laglake` promises: each is there, and none imports what an application with a reporter lacks."""

import subprocess
import sys

import pytest

import laglake


@pytest.mark.parametrize("name", laglake.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert callable(getattr(laglake, name))
    with pytest.raises(AttributeError, match=f"no attribute '{name}_absent'"):
        getattr(laglake, f"{name}_absent")


def test_reporters_need_neither_spark_nor_the_pipeline() -> None:
    program = "import laglake, sys; laglake.reporters; print([m for m in sys.modules if m in ('pyspark', 'pipeline')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

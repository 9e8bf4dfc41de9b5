"""Starts processes of tests/helpers/store_job.py."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from tests.conftest import ROOT


def start(settings: Mapping[str, str], *job: str) -> "subprocess.Popen[str]":
    """Starts a process with these settings of Spark."""
    command = [sys.executable, "-m", "tests.helpers.store_job", json.dumps(settings), *job]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: "subprocess.Popen[str]", timeout_s: float = 400) -> object:
    """The output of the process, after it has ended successfully."""
    printed, log = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, log[-4000:]
    return json.loads(printed)

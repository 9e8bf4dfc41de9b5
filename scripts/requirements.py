"""Prints the dependencies of the project, one on each line, without installing it: `requirements.py EXTRA...`.

pip reads the dependencies only of a project that it installs. The project itself must not be installed, so that Spark's
workers find it only in what spark-submit ships. `requirements.py --light` prints those of `make try`, which are for
the commands that do not start Spark.
"""

import configparser
import re
import sys
from pathlib import Path

SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"


NOT_TO_TRY = {"altair", "duckdb", "great-expectations"}
"""What jobs import that compute, notebooks and the demo, but not `make try`. With what they depend on, 240 MB."""


def light() -> list[str]:
    """The requirements of the commands that do not start Spark, with PySpark's client, which has no jars."""
    return [line for line in requirements(["connect"]) if re.match("[A-Za-z0-9_.-]+", line)[0] not in NOT_TO_TRY]


def requirements(extras: list[str]) -> list[str]:
    """The requirements in setup.cfg, followed by those of the extras."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read_string(SETUP.read_text(encoding="utf-8"))
    lists = [setup["options"]["install_requires"]]
    lists += [setup["options.extras_require"][extra] for extra in extras]
    return [line for text in lists for line in text.split("\n") if line]


if __name__ == "__main__":
    print("\n".join(light() if sys.argv[1:] == ["--light"] else requirements(sys.argv[1:])))

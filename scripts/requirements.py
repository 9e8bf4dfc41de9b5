"""Prints the dependencies of the project, one on each line, without installing it: `requirements.py EXTRA...`.

pip reads the dependencies only of a project that it installs. The project itself must not be installed, so that Spark's
workers find it only in what spark-submit ships.
"""

import configparser
import sys
from pathlib import Path

SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"


def requirements(extras: list[str]) -> list[str]:
    """The requirements in setup.cfg, followed by those of the extras."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read_string(SETUP.read_text(encoding="utf-8"))
    lists = [setup["options"]["install_requires"]]
    lists += [setup["options.extras_require"][extra] for extra in extras]
    return [line for text in lists for line in text.split("\n") if line]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))

"""Print what the project depends on, one requirement a line, without installing it: `requirements.py EXTRA...`.

pip can only read the dependencies of a project that it installs; here the project must stay out, so that Spark's
workers can find it nowhere but in what spark-submit ships.
"""

import configparser
import sys
from pathlib import Path

SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"


def requirements(extras: list[str]) -> list[str]:
    """The requirements of setup.cfg, those of the extras after them."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read_string(SETUP.read_text(encoding="utf-8"))
    lists = [setup["options"]["install_requires"]]
    lists += [setup["options.extras_require"][extra] for extra in extras]
    return [line for text in lists for line in text.split("\n") if line]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))

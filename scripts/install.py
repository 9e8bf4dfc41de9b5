"""Installs packages with pip, and says in a few lines what it does: `install.py WHAT REQUIREMENTS.txt [MARK]`.

pip itself prints some hundred lines. Here, each package that takes time has a line with its size, and in a terminal one
line at the bottom counts the others. pip's own output is in build/pip.log; if it fails, its errors are printed.
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

LOG = Path("build/pip.log")
LARGE_MB = 10.0
CLIENT = "pyspark-client"
WHEELS = "build/wheels"
_FETCHED = re.compile(
    r"\s*(?:Downloading|Using cached) (\S+)-(\d[\w.!+]*?)[-.](?:tar|zip|py|cp).* \(([\d.]+) ([kM]?)B\)"
)
_FOUND = re.compile(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
_INSTALLING = "Installing collected packages: "


class Progress:
    """What pip has done until now, from its lines."""

    def __init__(self, what: str, is_terminal: bool) -> None:
        self._what, self._is_terminal = what, is_terminal
        self._started = time.monotonic()
        self._packages: set[str] = set()
        self._mb = 0.0

    def see(self, line: str) -> None:
        """Takes the next line of pip's output, and prints what there is to say."""
        if found := _FOUND.match(line):
            self._packages.add(found[1])
            self._count(found[1])
        elif fetched := _FETCHED.match(line):
            name, version, size, unit = fetched.groups()
            mb = float(size) / {"": 1e6, "k": 1e3, "M": 1}[unit]
            self._mb += mb
            if mb >= LARGE_MB:
                self.say(f"package {len(self._packages)}: {name} {version} ({mb:.0f} MB)")
        elif line.startswith(_INSTALLING):
            number = line.count(",") + 1
            self.say(f"{number} packages, {self._mb:.0f} MB, are there; they are unpacked into {sys.prefix}")
        elif line.lstrip().startswith("Building wheel for") and "started" in line:
            self.say(f"{line.split()[3]} is prepared")

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        end = "\x1b[K\n" if self._is_terminal else "\n"
        sys.stdout.write(f"{self._time()} {text}{end}")
        sys.stdout.flush()

    def _count(self, name: str) -> None:
        if self._is_terminal:
            sys.stdout.write(f"{self._time()} {self._what}: package {len(self._packages)}, {name}\x1b[K\r")
            sys.stdout.flush()

    def _time(self) -> str:
        return f"[{time.monotonic() - self._started:5.1f} s]"


def main(what: str, requirements: str, replaced: str = "") -> int:
    """Returns the exit status of pip.

    `replaced` is the mark of an environment with PySpark's client. If it exists, everything is fetched before the
    client is removed, so that a failure of the network leaves the client there.
    """
    if not replaced or not Path(replaced).exists():
        return pip(["install"], requirements, f"installing {what}, once", "installed")
    status = pip(["wheel", "--wheel-dir", WHEELS], requirements, f"fetching {what}, once", "fetched")
    if status:
        return status
    Path(replaced).unlink()
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", CLIENT], check=True)
    local = ["install", "--no-index", "--find-links", WHEELS]
    status = pip(local, requirements, "PySpark's client makes room for PySpark", "installed")
    shutil.rmtree(WHEELS, ignore_errors=True)
    return status


def pip(subcommand: list[str], requirements: str, before: str, after: str) -> int:
    """Calls pip, and says what it does; returns its exit status."""
    command = [sys.executable, "-m", "pip", *subcommand, "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["-r", requirements, "-c", "constraints.txt"]
    progress = Progress(before.removesuffix(", once"), sys.stdout.isatty())
    progress.say(f"{before}; {LOG} has the details")
    errors = []
    LOG.parent.mkdir(exist_ok=True)
    with (
        LOG.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in process.stdout or ():
            log.write(line)
            progress.see(line)
            if re.match("ERROR|error:|  ×", line):
                errors.append(line)
    progress.say(f"pip failed:\n{''.join(errors)}" if process.returncode else after)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

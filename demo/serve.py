"""Runs a Kafka and the demo's workload until Ctrl-C or SIGTERM: `python -m demo.serve --directory build/kafka`.

Prints one line of how to reach it when everything is up; the addresses are in DIRECTORY/bootstrap-servers as well,
for as long as it runs. Exit status 1 with one line on standard error if something could not start or failed.
"""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

from demo.embedded_kafka.broker import EmbeddedKafka
from demo.errors import EmbeddedKafkaError
from demo.workload.workload import Workload

CHECK_EVERY_S = 1.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(argv)
    # kafka-python warns about every retry, and there are many during a start; `check` reports real errors.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    for name in STOP_SIGNALS:
        if signal.getsignal(name) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(name, _interrupt)
    try:
        with suppress(KeyboardInterrupt):
            _run(options)
    except EmbeddedKafkaError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(*_: object) -> NoReturn:
    """Acts like Ctrl-C, also during the start. The clean-up that follows must not be interrupted again."""
    for name in STOP_SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo.serve", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where everything is kept; emptied at the start")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 2, 3), help="how many brokers (1)")
    parser.add_argument("--with-parent", action="store_true", help="stop when the process that started it is gone")
    parser.add_argument("--no-workload", action="store_true", help="an empty Kafka, without readers and writers")
    return parser


def _run(options: argparse.Namespace) -> None:
    parent = os.getppid()
    with ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka(options.directory, options.brokers))
        workload = None if options.no_workload else stack.enter_context(Workload(kafka))
        kafka.announce()
        print(f"bootstrap servers: {kafka.bootstrap_servers} (stop with Ctrl-C or: kill {os.getpid()})", flush=True)
        while not options.with_parent or os.getppid() == parent:
            time.sleep(CHECK_EVERY_S)
            kafka.check()
            if workload is not None:
                workload.check()


if __name__ == "__main__":
    sys.exit(main())

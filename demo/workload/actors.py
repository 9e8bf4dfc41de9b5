"""The base of all parts of the workload: a thread that does one thing repeatedly, and whose failure is reported."""

import threading
from abc import ABC, abstractmethod


class Actor(ABC):
    """One producer, reader or other habit in a thread of its own.

    `settled` is set as soon as what the actor is there to show can be seen in Kafka. An actor may end by itself: one
    that stops reading is a habit too. `error` is what ended it otherwise.
    """

    def __init__(self, name: str, bootstrap_servers: str) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.settled = threading.Event()
        self.error: Exception | None = None
        self._stopping = threading.Event()
        # A daemon: a client library that hangs in close() must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def act(self) -> None:
        """Show the habit until `is_stopping`."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Return at once; `join` waits."""
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, if it was started; record an error if it does not end in time."""
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, timeout_s))
        if self._thread.is_alive() and self.error is None:
            self.error = TimeoutError(f"{self.name} did not stop in time")

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps, unless asked to stop; returns whether it was."""
        return self._stopping.wait(max(0.0, seconds))

    def _run(self) -> None:
        try:
            self.act()
        except Exception as error:  # noqa: BLE001 - whatever it is, Workload.errors() hands it on
            self.error = error

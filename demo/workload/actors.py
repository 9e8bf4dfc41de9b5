"""The base class for all parts of the workload: a thread that does one thing repeatedly, and reports its failure."""

import threading
from abc import ABC, abstractmethod


class Actor(ABC):
    """One producer, reader or other behaviour, in its own thread.

    `settled` is set as soon as the actor's behaviour can be seen in Kafka. An actor may end by itself, because to stop
    reading is a behaviour, too. If an error has ended it, this is `error`.
    """

    def __init__(self, name: str, bootstrap_servers: str) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.settled = threading.Event()
        self.error: Exception | None = None
        self._stopping = threading.Event()
        # A daemon thread, so that a client library that hangs in close() does not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def act(self) -> None:
        """Shows the behaviour until `is_stopping`."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Asks the actor to stop, without waiting; `join` waits."""
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        """Waits for the end of the thread, if it was started; records an error if it does not end in time."""
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

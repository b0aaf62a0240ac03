"""TCP proxy on loopback: forwards connections to a server, and splits the network on request."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread


class Proxy:
    """Forwards to a port; while it is split, it accepts and keeps everything, and nobody gets an answer."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._closed = False
        Thread(target=self._accept, daemon=True).start()

    def split(self) -> None:
        """Hold all data back, as a network that loses every packet does."""
        self._open.clear()

    def heal(self) -> None:
        """Deliver what was held back, and all that follows."""
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        for each in (self._listener, *self._sockets):
            _end(each)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", self._target))
                    self._sockets += [client, server]
                    if self._closed:
                        self.close()
                    for source, target in ((client, server), (server, client)):
                        Thread(target=self._forward, args=(source, target), daemon=True).start()
                    continue
                client.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    """End a connection in both directions: closing alone sends nothing while a thread reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

"""Who may connect: how many at a time, and pages of which origins."""

from asyncio import BaseTransport, Transport
from typing import cast
from urllib.parse import urlsplit

from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers

from transducer_gn.config import ServingConfig

USUAL_PORT = 80
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def allowed_origins(config: ServingConfig, port: int) -> set[str]:
    """Origins whose pages may connect: the server's own, under the names of this machine, and those that were given."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    # Browsers leave the usual port out.
    suffix = "" if port == USUAL_PORT else f":{port}"
    return {f"http://{name}{suffix}" for name in (*LOOPBACK, host)} | set(config.origins)


def refused_headers(headers: Headers, origins: set[str]) -> str | None:
    """Why a request is not served; None if it may be.

    A browser says where a page comes from, and by what name the page knows the server. The name is looked at, too: a
    page may give a name of its own to this machine's address, and then its origin is the same as the server's.
    """
    names = {urlsplit(origin).netloc for origin in origins}
    hosts = headers.get_all("Host")
    if len(hosts) != 1 or hosts[0] not in names:
        return f"the server is not known as {', '.join(hosts) or 'nothing'}; --origins lists further names"
    found = headers.get_all("Origin")
    if any(origin not in origins for origin in found):
        return f"pages of {', '.join(found)} may not connect; --origins lists those that may"
    return None


class Gate:
    """Counts connections, and turns away those beyond a limit before they have said anything."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside: set[object] = set()

    def connection_class(self) -> type[ServerConnection]:
        """Connections that go through this gate."""
        gate = self

        class GatedConnection(ServerConnection):
            """A connection that may be turned away."""

            def connection_made(self, transport: BaseTransport) -> None:
                if len(gate.inside) < gate.most:
                    gate.inside.add(self)
                    super().connection_made(transport)
                    return
                # Without a handler: nobody waits for what this client has to say.
                Connection.connection_made(self, transport)
                writer = cast(Transport, transport)
                writer.write(turned_away(gate.most))
                writer.close()

            def data_received(self, data: bytes) -> None:
                if self in gate.inside:
                    super().data_received(data)

            def connection_lost(self, exc: Exception | None) -> None:
                gate.inside.discard(self)
                super().connection_lost(exc)

        return GatedConnection


def turned_away(most: int) -> bytes:
    """The answer to one connection too many."""
    sentence = f"the server has {most} connections already; try again later\n".encode()
    head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Type: text/plain\r\n"
    return head.encode() + f"Content-Length: {len(sentence)}\r\n\r\n".encode() + sentence

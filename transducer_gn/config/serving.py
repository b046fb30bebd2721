"""Settings of the live server: where it listens, and how much it takes on."""

from dataclasses import dataclass, field

from transducer_gn.common.errors import require


@dataclass(frozen=True)
class ServingConfig:
    """Where the server listens, and its limits; whoever goes beyond one is told so in a sentence.

    Attributes:
        host: address to listen on; by default only programs on this machine reach it
        port: port to listen on; 0 for any that is free
        origins: pages that may connect besides the server's own, such as https://example.org; the addresses under
            which browsers reach the server itself where that is not this machine's
        streams: streams at a time
        connections: connections at a time, those of pages and those that have said nothing yet included
        message_bytes: largest message
        ahead: seconds of audio that a stream may be ahead of the recogniser
        idle: seconds without a message after which a stream is ended, and within which a client must take a message
        drain: seconds that streams have to finish once the server is asked to end
    """

    host: str = "127.0.0.1"
    port: int = 8765
    origins: list[str] = field(default_factory=list)
    streams: int = 144
    connections: int = 1000
    message_bytes: int = 64000
    ahead: float = 20.0
    idle: float = 30.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        require(0 <= self.port < 65536, "--port", f"must be from 0 to 65535, not {self.port}")
        for name in ("streams", "connections", "message_bytes", "ahead", "idle"):
            value = getattr(self, name)
            require(value > 0, f"--{name.replace('_', '-')}", f"must be above 0, not {value}")
        require(self.drain >= 0, "--drain", f"must be 0 or more seconds, not {self.drain}")
        for origin in self.origins:
            scheme, separator, rest = origin.partition("://")
            fine = separator and scheme in ("http", "https") and rest and "/" not in rest
            require(
                bool(fine), "--origins", f"{origin} is no origin; write it as https://example.org or http://host:8765"
            )

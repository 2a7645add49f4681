"""One address for several webhook servers, as a Service is: each connection goes to the next one.

Bytes pass as they are, so the API server verifies the servers' own certificates. A server that
does not take the connection is passed over; connections to one that dies are reset.

usage: python -m hack.forward PORT SERVER_PORT...
"""

import asyncio
import contextlib
import itertools
import sys
from typing import Final

CHUNK: Final = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Forwarder:
    """Takes the servers in turn."""

    def __init__(self, ports: tuple[int, ...]) -> None:
        self._ports = ports
        self._turns = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        try:
            server = await self._next()
            if server is not None:
                await _carry((reader, writer), server)
        finally:
            writer.close()

    async def _next(self) -> Streams | None:
        first = next(self._turns)
        for offset in range(len(self._ports)):
            port = self._ports[(first + offset) % len(self._ports)]
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None


async def _carry(client: Streams, server: Streams) -> None:
    """Copy both ways; the end of one way is passed on, a failure ends both."""
    ways = (_copy(client[0], server[1]), _copy(server[0], client[1]))
    try:
        with contextlib.suppress(OSError):
            await asyncio.gather(*ways)
    finally:
        server[1].close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK):
        target.write(chunk)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


async def main() -> None:
    port, *ports = map(int, sys.argv[1:])
    server = await asyncio.start_server(Forwarder(tuple(ports)).serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

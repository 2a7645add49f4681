"""One address in front of several servers, connection by connection."""

import asyncio

from hack.forward import Forwarder


async def _with_servers(names, use):
    """Start a server for each name that answers with it, and a forwarder; run `use` on its port."""

    def answering(name):
        async def answer(reader, writer):
            line = await reader.readline()
            writer.write(f"{name} {line.decode()}".encode())
            writer.close()

        return answer

    servers = [await asyncio.start_server(answering(name), "127.0.0.1", 0) for name in names]
    ports = tuple(server.sockets[0].getsockname()[1] for server in servers)
    front = await asyncio.start_server(Forwarder(ports).serve, "127.0.0.1", 0)
    try:
        return await use(front.sockets[0].getsockname()[1], servers)
    finally:
        for server in (front, *servers):
            server.close()


async def _ask(port, text="hello"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{text}\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode().strip()


def test_connections_go_to_the_servers_in_turn():
    async def use(port, _):
        return [await _ask(port) for _ in range(4)]

    assert asyncio.run(_with_servers(["a", "b"], use)) == ["a hello", "b hello"] * 2


def test_a_server_that_is_gone_is_passed_over():
    async def use(port, servers):
        servers[0].close()
        await servers[0].wait_closed()
        return [await _ask(port) for _ in range(3)]

    assert asyncio.run(_with_servers(["a", "b"], use)) == ["b hello"] * 3


def test_without_any_server_the_connection_ends():
    async def use(port, servers):
        for server in servers:
            server.close()
            await server.wait_closed()
        return await _ask(port)

    assert asyncio.run(_with_servers(["a"], use)) == ""

"""Leases of ports."""

import contextlib
import socket

from hack.ports import RANGE, Ports


def test_leased_ports_differ_and_stay_clear_of_outgoing_connections():
    first, second = Ports(), Ports()

    leased = [ports.lease() for ports in (first, second) for _ in range(20)]

    assert len(set(leased)) == 40
    assert all(port in RANGE for port in leased)
    first.release()
    second.release()


def test_a_leased_port_can_be_listened_at():
    ports = Ports()

    with contextlib.closing(socket.create_server(("127.0.0.1", ports.lease()))) as server:
        assert server.getsockname()[0] == "127.0.0.1"
    ports.release()

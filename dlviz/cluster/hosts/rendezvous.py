"""How the parents of the hosts find each other: each writes into torchrun's store who it is, reads
who the others are, and refuses what cannot work together. Then they connect, two by two.

The run's secret is what the environment variable DLVIZ_SECRET says on all hosts. Where it is not
set host 0 draws one and puts it into the store: it is then as safe as the store, and who can write
into that can have torchrun itself do anything.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import struct
import sys
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from dlviz.cluster.hosts import wire
from dlviz.cluster.hosts.network import Host, Network, Store, versions
from dlviz.cluster.hosts.wire import Forged, Wire

SECRET = "DLVIZ_SECRET"  # in the environment
INTERFACE = "GLOO_SOCKET_IFNAME"  # the same, also gloo's
GLANCE = 0.2  # s between two looks at whether another host has failed
PATIENCE = 10.0  # s for a connection to be made
HELLO = struct.Struct("=8si16s")  # magic, number of the host, what it has drawn
MAGIC = b"dlviz 1\n"
ADDRESS_OF = 0x8915  # SIOCGIFADDR
GREETING = 255  # kind of the first frame


class Rendezvous(NamedTuple):
    """The hosts of a run, and the wires to the others by their number."""

    network: Network
    wires: dict[int, Wire]


def meet(store: Store, number: int, hosts: int, ranks: tuple[int, ...]) -> Rendezvous:
    """Meet the other hosts. ValueError, on all of them, where they do not fit together."""
    keys = store.open()
    try:
        return _meet(keys, store, number, hosts, ranks)
    except ValueError as error:
        keys.set(f"host {number}", json.dumps({"failed": str(error)}))
        keys.set("failed", str(error))
        raise


def _meet(keys: Any, store: Store, number: int, hosts: int, ranks: tuple[int, ...]) -> Rendezvous:
    interface, address = way_to(store.address, store.port)
    if number == 0 and address.startswith("127."):  # its own name may lead there alone
        interface, address = way_to(_read(keys, 1)["address"], store.port)
    with socket.create_server((address, 0), backlog=hosts) as listener:
        about = {
            "name": socket.gethostname(),
            "address": address,
            "interface": interface,
            "ranks": ranks,
            "port": listener.getsockname()[1],
            "versions": versions(),
            "secret": SECRET in os.environ,
        }
        keys.set(f"host {number}", json.dumps(about))
        all_of = [_read(keys, each) for each in range(hosts)]
        check(all_of)
        secret = _secret(keys, number)
        found = tuple(_host(each, all_of) for each in range(hosts))
        wires = _connect(listener, number, all_of, secret, keys)
    return Rendezvous(Network(found, number, store), wires)


def _read(keys: Any, number: int) -> dict[str, Any]:
    about = json.loads(keys.get(f"host {number}"))
    if "failed" in about:
        raise ValueError(about["failed"])
    return about


def _host(number: int, all_of: list[dict[str, Any]]) -> Host:
    """Hosts with the same name have their number beside it."""
    about = all_of[number]
    name = about["name"]
    if [each["name"] for each in all_of].count(name) > 1:
        name = f"{name} (node {number})"
    return Host(name, about["address"], about["interface"], tuple(about["ranks"]))


def check(all_of: list[dict[str, Any]]) -> None:
    """Raise where the hosts do not run the same, or do not all have a secret."""
    first = all_of[0]
    for other in all_of[1:]:
        for what, version in first["versions"].items():
            if other["versions"].get(what) != version:
                raise ValueError(
                    f"{what} is {version} on {first['name']} and {other['versions'].get(what)} on "
                    f"{other['name']}: install the same version on all hosts."
                )
        if other["secret"] != first["secret"]:
            has, lacks = (first, other) if first["secret"] else (other, first)
            raise ValueError(
                f"{SECRET} is set on {has['name']} and not on {lacks['name']}: set it to the same "
                "on all hosts, or on none."
            )


def _secret(keys: Any, number: int) -> bytes:
    if SECRET in os.environ:
        return os.environ[SECRET].encode()
    if number == 0:
        keys.set("secret", secrets.token_hex(32))
    return keys.get("secret")


# -- interfaces ------------------------------------------------------------------------------------
def way_to(address: str, port: int) -> tuple[str, str]:
    """The interface with the route to that address and its own address; or the one that
    GLOO_SOCKET_IFNAME names."""
    there = interfaces()
    asked = os.environ.get(INTERFACE)
    if asked:
        if asked not in there:
            raise ValueError(
                f"{INTERFACE}={asked!r} is no interface of {socket.gethostname()} with an IPv4 "
                f"address: it has {', '.join(there)}; name one of these, or leave it out."
            )
        return asked, there[asked]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            own = probe.getsockname()[0]
    except OSError as error:
        raise ValueError(
            f"{socket.gethostname()} has no route to {address} ({error}): see that the hosts are "
            "on one network."
        ) from None
    for name, its in there.items():
        if its == own or (own.startswith("127.") and its.startswith("127.")):
            return name, its
    raise ValueError(
        f"the address {own} of {socket.gethostname()}, from which {address} is reached, belongs to "
        f"none of {', '.join(there)}: set {INTERFACE} to the interface that it is to use."
    )


def interfaces() -> dict[str, str]:
    """The IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex() if sys.platform == "linux" else ():
            with suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(probe.fileno(), ADDRESS_OF, asked)
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


# -- wires -----------------------------------------------------------------------------------------
def _connect(
    listener: socket.socket, own: int, all_of: list[dict[str, Any]], secret: bytes, keys: Any
) -> dict[int, Wire]:
    """Connect to the hosts before this one, and have those after it connect."""
    wires: dict[int, Wire] = {}
    try:
        for number in range(own):
            sock = _reach(all_of[own], all_of[number])
            try:
                _, wires[number] = greet(sock, own, secret, called=False)
            except ConnectionError:
                sock.close()
                raise _stranger(all_of[own], all_of[number]) from None
        until = monotonic() + PATIENCE
        while len(wires) < len(all_of) - 1:
            if keys.check(["failed"]):
                raise ValueError(keys.get("failed").decode())
            if monotonic() > until:
                missing = next(n for n in range(own + 1, len(all_of)) if n not in wires)
                raise _stranger(all_of[own], all_of[missing])
            _let_in(listener, own, secret, range(own + 1, len(all_of)), wires)
    except BaseException:
        for each in wires.values():
            each.close()
        raise
    return wires


def _reach(own: dict[str, Any], other: dict[str, Any]) -> socket.socket:
    try:
        place = other["address"], other["port"]
        return socket.create_connection(place, PATIENCE, (own["address"], 0))
    except OSError as error:
        raise ValueError(
            f"{own['name']} (interface {own['interface']}, {own['address']}) cannot reach "
            f"{other['name']} (interface {other['interface']}, {other['address']}): {error}; let "
            f"the hosts' firewalls pass what they say to each other, or set {INTERFACE} on each to "
            "the interface on the network of both."
        ) from None


def _let_in(
    listener: socket.socket, own: int, secret: bytes, others: range, wires: dict[int, Wire]
) -> None:
    """Let one of the `others` connect, if one comes soon; who does not know the secret is sent
    away."""
    listener.settimeout(GLANCE)
    try:
        sock = listener.accept()[0]
    except TimeoutError:
        return
    try:
        number, found = greet(sock, own, secret, called=True)
    except ConnectionError:
        sock.close()
        return
    if number in others and number not in wires:
        wires[number] = found
    else:
        found.close()


def _stranger(own: dict[str, Any], other: dict[str, Any]) -> ValueError:
    return ValueError(
        f"{own['name']} and {other['name']} could not make sure of each other within "
        f"{PATIENCE:g} s: set {SECRET} to the same on both, and let their firewalls pass what they "
        "say to each other."
    )


def greet(sock: socket.socket, own: int, secret: bytes, called: bool) -> tuple[int, Wire]:
    """The number of the host at the other end, and the wire to it; ConnectionError where it does
    not know the secret. `called`: the other end has connected to this one."""
    sock.settimeout(PATIENCE)
    drawn = secrets.token_bytes(16)
    try:
        sock.sendall(HELLO.pack(MAGIC, own, drawn))
        magic, number, its = HELLO.unpack(_exactly(sock, HELLO.size))
        if magic != MAGIC:
            raise Forged("it speaks another language")
        both = (drawn, its) if called else (its, drawn)
        found = Wire(sock, wire.keys(secret, both, called))
        found.send(GREETING, own)
        sock.settimeout(PATIENCE)
        size = wire.FRAME.size + wire.HEADER.size
        frames = list(found.cut(_exactly(sock, size)))
        sock.setblocking(False)
    except OSError as error:
        raise ConnectionError(str(error)) from None
    if [each[:2] for each in frames] != [(GREETING, number)]:
        raise Forged("it is not who it says it is")
    return number, found


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError("it closed its connection")
        data += more
    return data

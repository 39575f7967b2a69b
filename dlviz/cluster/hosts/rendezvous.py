"""How the parents of the hosts find each other: each describes itself in torchrun's store, reads
about the others, and refuses to run with hosts that do not match. Then they connect, two by two.

The run's secret is the environment variable DLVIZ_SECRET, the same on all hosts. If it is not set
host 0 draws one and puts it into the store: it is then as safe as the store, and whoever can write
there controls torchrun itself.
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

import torch.distributed as dist

from dlviz.cluster.errors import RunError
from dlviz.cluster.hosts.handshake import UNIDENTIFIED, Listener, shake_hands
from dlviz.cluster.hosts.network import (
    PATIENCE,
    WAIT,
    Host,
    Network,
    Store,
    first_line,
    versions,
)
from dlviz.cluster.hosts.wire import Wire

SECRET = "DLVIZ_SECRET"  # in the environment
INTERFACE = "GLOO_SOCKET_IFNAME"  # the same, also gloo's
LONGER = 2.0  # s more patience of the accepting end: the connecting one knows more
ADDRESS_OF = 0x8915  # SIOCGIFADDR


class Rendezvous(NamedTuple):
    """The hosts of a run, and the wires to the others by their number."""

    network: Network
    wires: dict[int, Wire]


def join(store: Store, number: int, hosts: int, ranks: tuple[int, ...], device: str) -> Rendezvous:
    """Join the other hosts; this one's `ranks` have their tensors on `device`. Raises on all of
    them what failed first: ValueError if they do not match or reach each other, RunError if one
    does not join."""
    keys = store.open()
    try:
        return _join(keys, store, number, hosts, ranks, device)
    except (ValueError, RunError) as error:
        first = said = str(error)
        with suppress(dist.DistError):  # the store may be what has failed
            first = keys.compare_set("met", "", said).decode()
            keys.set(f"host {number}", json.dumps({"failed": first}))
        if first == said:
            raise
        raise type(error)(first) from None  # which may be why the others are out of reach


def _join(
    keys: Any, store: Store, number: int, hosts: int, ranks: tuple[int, ...], device: str
) -> Rendezvous:
    interface, address = route_to(store.address, store.port)
    if number == 0 and address.startswith("127."):  # its own name may lead there alone
        interface, address = route_to(_read(keys, 1)["address"], store.port)
    with socket.create_server((address, 0), backlog=2 * UNIDENTIFIED) as server:
        about = {
            "name": socket.gethostname(),
            "address": address,
            "interface": interface,
            "ranks": ranks,
            "port": server.getsockname()[1],
            "versions": versions(),
            "device": device,
            "secret": SECRET in os.environ,
        }
        keys.set(f"host {number}", json.dumps(about))
        all_of = [_read(keys, each) for each in range(hosts)]
        check(all_of)
        secret = _secret(keys, number)
        found = tuple(_host(each, all_of) for each in range(hosts))
        wires = _connect(server, number, all_of, secret, keys)
    return Rendezvous(Network(found, number, store), wires)


def _read(keys: Any, number: int) -> dict[str, Any]:
    about = json.loads(_get(keys, f"host {number}", f"host {number} has not called launch"))
    if "failed" in about:
        raise ValueError(about["failed"])
    return about


def _get(keys: Any, key: str, lacks: str) -> bytes:
    """What a host puts into the store; RunError, which says what it `lacks`, if that does not
    arrive."""
    try:
        return keys.get(key)
    except dist.DistStoreError:
        here = socket.gethostname()
        raise RunError(
            f"{lacks} within {WAIT:g} s of {here}: see what torchrun says there; all hosts have to "
            "call launch, as often and in the same order."
        ) from None
    except dist.DistError as error:
        raise RunError(
            f"torchrun's store on the first host has gone: {first_line(error)}"
        ) from None


def _host(number: int, all_of: list[dict[str, Any]]) -> Host:
    """Hosts with the same name have their number beside it."""
    about = all_of[number]
    name = about["name"]
    if [each["name"] for each in all_of].count(name) > 1:
        name = f"{name} (node {number})"
    return Host(name, about["address"], about["interface"], tuple(about["ranks"]))


def check(all_of: list[dict[str, Any]]) -> None:
    """Raise if versions or devices differ, or only some hosts have a secret."""
    first = all_of[0]
    for other in all_of[1:]:
        for what, version in first["versions"].items():
            if other["versions"].get(what) != version:
                raise ValueError(
                    f"{what} is {version} on {first['name']} and {other['versions'].get(what)} on "
                    f"{other['name']}: install the same version on all hosts."
                )
        if other["device"] != first["device"]:
            raise ValueError(
                f"the ranks' device is {first['device']} on {first['name']} and {other['device']} "
                f"on {other['name']}: give all hosts the same, such as device='cpu'."
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
    return _get(keys, "secret", "host 0 has given no secret")


# -- interfaces ------------------------------------------------------------------------------------
def route_to(address: str, port: int) -> tuple[str, str]:
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
    own = own_address(address, port)
    for name, its in there.items():
        if its == own or (own.startswith("127.") and its.startswith("127.")):
            return name, its
    raise ValueError(
        f"the address {own} of {socket.gethostname()}, from which {address} is reached, belongs to "
        f"none of {', '.join(there)}: set {INTERFACE} to the interface to use."
    )


def own_address(address: str, port: int) -> str:
    """This host's address on the route to that one; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            return probe.getsockname()[0]
    except socket.gaierror as error:
        raise ValueError(
            f"{socket.gethostname()} finds no IPv4 address of {address}, where torchrun's store is "
            f"({error}): hosts talk to each other by IPv4; give torchrun on the first host "
            "--local-addr=ADDRESS with an IPv4 address."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{socket.gethostname()} has no route to {address} ({error}): see that the hosts are "
            "on one network."
        ) from None


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
    server: socket.socket, own: int, all_of: list[dict[str, Any]], secret: bytes, keys: Any
) -> dict[int, Wire]:
    """Connect to the hosts before this one, and have those after it connect."""
    wires: dict[int, Wire] = {}
    try:
        for number in range(own):
            sock = _reach(all_of[own], all_of[number])
            try:
                _, wires[number] = shake_hands(sock, own, secret, called=False)
            except ConnectionError:
                sock.close()
                raise _unauthenticated(all_of[own], all_of[number]) from None
        with Listener(server, own, secret, range(own + 1, len(all_of)), wires) as listener:
            _accept_all(listener, all_of, keys)
        for number in listener.others:  # gloo connects in this direction, too
            _reach(all_of[own], all_of[number]).close()
        _agree(keys, len(all_of))
    except BaseException:
        for each in wires.values():
            each.close()
        raise
    return wires


def _agree(keys: Any, hosts: int) -> None:
    """Return when all hosts have connected; ValueError where one could not."""
    if keys.add("connected", 1) == hosts:
        keys.set("met", "")
    failure = _get(keys, "met", "not all hosts have connected to each other").decode()
    if failure:
        raise ValueError(failure)


def _reach(own: dict[str, Any], other: dict[str, Any]) -> socket.socket:
    try:
        place = other["address"], other["port"]
        return socket.create_connection(place, PATIENCE, (own["address"], 0))
    except OSError as error:
        raise ValueError(
            f"{own['name']} (interface {own['interface']}, {own['address']}) cannot reach "
            f"{other['name']} (interface {other['interface']}, {other['address']}): {error}; let "
            f"the hosts' firewalls pass their traffic to each other, or set {INTERFACE} on each to "
            "the interface on the network of both."
        ) from None


def _accept_all(listener: Listener, all_of: list[dict[str, Any]], keys: Any) -> None:
    """Return when all hosts after this one have connected."""
    until = monotonic() + PATIENCE + LONGER
    while missing := [number for number in listener.others if number not in listener.wires]:
        if keys.check(["met"]):
            raise ValueError(keys.get("met").decode())
        if monotonic() > until:
            raise _unauthenticated(all_of[listener.own], all_of[missing[0]])
        listener.look()


def _unauthenticated(own: dict[str, Any], other: dict[str, Any]) -> ValueError:
    return ValueError(
        f"{own['name']} and {other['name']} could not authenticate each other within "
        f"{PATIENCE:g} s: set {SECRET} to the same on both, and let their firewalls pass their "
        "traffic to each other."
    )

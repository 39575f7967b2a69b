"""Hosts on one machine: network namespaces, each with a cable to a switch.

    host-a 10.77.0.1 eth0  --- tbf, veth ---  switch  --- veth, tbf ---  eth0 10.77.0.2 host-b

Each has mount, UTS, PID and time namespaces of its own too: its own /dev/shm, /tmp, name and
processes, and a monotonic clock some seconds ahead. Shared are the system, the files outside /tmp,
and inside it this clone and Python's environment. A host ends with its first process, and
everything on it too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

TOOLS = ("unshare", "nsenter", "ip", "tc")
NAMESPACES = ("--net", "--mount", "--uts", "--pid", "--time")
NETWORK = "10.77.0"
MOST = 8  # hosts
NAMES = "127.0.0.1 localhost\n" + "".join(
    f"{NETWORK}.{number + 1} host-{'abcdefgh'[number]}\n" for number in range(MOST)
)
SHARED = [
    folder
    for folder in map(str, (Path(__file__).parents[1], sys.prefix, sys.base_prefix))
    if folder.startswith("/tmp/")
]
# The first process of a host, with the folders of /tmp that it shares as arguments. /etc/hosts is
# its own. It waits until its input ends.
FIRST = """
set -e
mount -t tmpfs tmpfs /dev/shm
mkdir /dev/shm/tmp
mount -t tmpfs tmpfs /dev/shm/tmp
printf '%s' "$NAMES" > /dev/shm/tmp/hosts
mount --bind /dev/shm/tmp/hosts /etc/hosts
hostname "$1"
shift
for folder; do
  mkdir -p "/dev/shm$folder"
  mount --bind "$folder" "/dev/shm$folder"
done
mount --move /dev/shm/tmp /tmp
rmdir /dev/shm/tmp
ip link set lo up
echo ready
read _
"""


class Host:
    """`first` is the process with which the host ends, by its pid outside."""

    address: str

    def __init__(self, name: str, ahead: int = 0):
        self.name = name
        self._started: list[subprocess.Popen[str]] = []
        offsets = ("--monotonic", str(ahead), "--boottime", str(ahead))
        how = ("unshare", *NAMESPACES, *offsets, "--fork", "--kill-child", "--mount-proc")
        self._holder = subprocess.Popen(
            [*how, "sh", "-c", FIRST, "sh", self.name, *SHARED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NAMES": NAMES},
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.communicate()[1].strip()
            raise OSError(said or "a namespace could not be made")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.first = int(children.read_text())

    def start(self, *command: str | Path, **environ: str) -> subprocess.Popen[str]:
        """Start a command on this host, in the current folder, with pipes for its output."""
        started = subprocess.Popen(
            [*self._inside(*NAMESPACES), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )
        self._started.append(started)
        return started

    def run(self, *command: str | Path) -> str:
        """What a command on this host prints; it must not fail."""
        inside = self._inside(*NAMESPACES)
        return _printed([*inside, *map(str, command)])

    def link(self, *command: str) -> str:
        """`ip` or `tc` in this host's network alone, where pids are those outside."""
        return _printed([*self._inside("--net"), *command])

    def file(self, path: str) -> Path:
        """The path outside of a file of this host, whose `/tmp` is another one."""
        return Path(f"/proc/{self.first}/root{path}")

    def processes(self) -> list[str]:
        """The processes on this host, without its first one and the one that asks."""
        lines = self.run("ps", "-eo", "pid=,comm=").splitlines()
        return [line.split()[1] for line in lines if line.split()[0] != "1" and "ps" not in line]

    def end(self) -> None:
        """End all that runs here."""
        self._holder.kill()  # --kill-child: the first process goes with it, and all others
        self._holder.communicate()
        for started in self._started:
            started.wait()
            for pipe in (started.stdout, started.stderr):
                assert pipe is not None
                pipe.close()

    def _inside(self, *namespaces: str) -> list[str]:
        # A mount namespace has a root of its own; the folder is the caller's.
        here = [f"--wd={os.getcwd()}"] if "--mount" in namespaces else []
        return ["nsenter", "--target", str(self.first), *namespaces, *here]


def _printed(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def several_hosts(count: int = 2, ahead: int = 1000, rate: str = "1gbit") -> Iterator[list[Host]]:
    """Hosts (at most `MOST`) with cables of that rate to one switch; the monotonic clock of each is
    `ahead` (s) of the one before. Raises OSError if the system forbids them."""
    with ExitStack() as left:
        switch = Host("switch")
        left.callback(switch.end)
        switch.link(*"ip link add ports type bridge".split())
        switch.link(*"ip link set ports up".split())
        hosts = []
        for number in range(count):
            hosts.append(Host(f"host-{'abcdefgh'[number]}", number * ahead))
            left.callback(hosts[-1].end)
            hosts[-1].address = f"{NETWORK}.{number + 1}"
            _plug(hosts[-1], switch, number, rate)
        yield hosts


def _plug(host: Host, switch: Host, number: int, rate: str) -> None:
    port, plug = f"port{number}", ("peer", "name", "eth0", "netns", str(host.first))
    switch.link("ip", "link", "add", port, "type", "veth", *plug)
    switch.link("ip", "link", "set", port, "master", "ports", "up")
    host.link("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    host.link("ip", "link", "set", "eth0", "up")
    # The queue of a switch's port: with 6 MB each, 50 ms at 1 Gbit/s, two connections would have
    # more in flight than their windows hold.
    shape = f"tc qdisc add dev eth0 root tbf rate {rate} burst 256kb limit 881kb"
    host.link(*shape.split())


def why_not() -> str:
    """Why two hosts cannot be made here; "" if they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: `apt-get install iproute2 util-linux`"
    try:
        with several_hosts():
            return ""
    except OSError as error:
        return f"namespaces may not be made here ({error}): run as root"

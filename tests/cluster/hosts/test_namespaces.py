"""The hosts of the tests are as apart as machines are: network, memory, files, name and clock."""

import socket
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import namespaces
import pytest
from namespaces import Host, several_hosts

import benchmarks.namespaces

CLOCK = "import time; print(time.perf_counter())"


@pytest.fixture(scope="module")
def hosts():
    namespaces.need(namespaces.why_not())
    with several_hosts() as pair:
        yield pair


def test_each_has_its_name_its_memory_and_its_temporary_folder(hosts):
    for host in hosts:
        assert host.run("hostname").strip() == host.name
        for folder in ("/dev/shm", "/tmp"):
            host.file(f"{folder}/of-{host.name}").write_text(host.name)
    for host, other in (hosts, hosts[::-1]):
        for folder in ("/dev/shm", "/tmp"):
            assert host.run("cat", f"{folder}/of-{host.name}") == host.name
            assert not host.file(f"{folder}/of-{other.name}").exists()
            assert not Path(f"{folder}/of-{host.name}").exists()


def test_a_clone_below_the_temporary_folder_is_there_on_a_host_and_nothing_beside_it(monkeypatch):
    namespaces.need(namespaces.why_not())
    with TemporaryDirectory(dir="/tmp") as folder:
        clone = Path(folder) / "a clöne"
        (clone / "dlviz").mkdir(parents=True)
        (Path(folder) / "beside").touch()
        monkeypatch.setattr(benchmarks.namespaces, "SHARED", [str(clone)])
        host = Host("host-a")
        try:
            assert host.run("ls", folder) == "a clöne\n" and host.run("ls", clone) == "dlviz\n"
            assert host.run("ls", "/dev/shm") == ""
        finally:
            host.end()


def test_they_reach_each_other_and_nobody_else(hosts):
    one, other = hosts
    listen = one.start(sys.executable, "-c", LISTEN, one.address)
    assert listen.stdout.readline() == "listening\n"
    assert other.run(sys.executable, "-c", SAY, "host-a") == ""
    assert listen.communicate(timeout=10)[0].strip() == f"hello from {other.address}"
    with pytest.raises(OSError, match="unreachable"):
        other.run(sys.executable, "-c", SAY, "10.78.0.1")


LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 4000)) as server:
    print("listening", flush=True)
    peer, (address, _) = server.accept()
    print(peer.recv(100).decode(), "from", address)
"""
SAY = """
import socket, sys
with socket.create_connection((sys.argv[1], 4000), timeout=5) as peer:
    peer.sendall(b"hello")
"""


def test_the_clock_of_one_is_a_thousand_seconds_ahead(hosts):
    before, (here, there) = (
        time.perf_counter(),
        [float(h.run(sys.executable, "-c", CLOCK)) for h in hosts],
    )
    after = time.perf_counter()
    assert before < here < after
    assert before + 1000 < there < after + 1000


def test_a_command_that_is_left_running_ends_with_its_host():
    namespaces.need(namespaces.why_not())
    interfaces = socket.if_nameindex()
    with several_hosts() as (one, _):
        left = one.start("sh", "-c", "sleep 600 & sleep 601")
        while one.processes().count("sleep") < 2:
            time.sleep(0.02)
        pids = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x00601" in read(p)]
    assert left.wait(10) != 0
    left.communicate()
    assert pids
    until = time.monotonic() + 10  # the system ends what its namespace held
    while any(b"sleep\x00601" in read(path) for path in pids):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert socket.if_nameindex() == interfaces


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail), ("", pytest.skip)])
def test_hosts_that_cannot_be_made_fail_in_ci_and_skip_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr("benchmarks.namespaces.shutil.which", lambda name: None)
    with pytest.raises(outcome.Exception, match="unshare, nsenter, ip, tc not found"):
        namespaces.need(namespaces.why_not())

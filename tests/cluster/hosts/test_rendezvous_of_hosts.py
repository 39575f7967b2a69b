"""Hosts that do not fit together are refused by name before anything runs."""

import re
import socket

import pytest

from dlviz.cluster.hosts.network import versions
from dlviz.cluster.hosts.rendezvous import check, interfaces, route_to


def about(name, secret=False, device="cpu", **other):
    versions_there = {**versions(), **other}
    return {"name": name, "versions": versions_there, "device": device, "secret": secret}


def test_hosts_with_the_same_versions_fit_together():
    check([about("a"), about("b"), about("c")])


@pytest.mark.parametrize("what", ["dlviz", "torch", "Python"])
def test_another_version_is_refused_by_name_and_host(what):
    says = re.escape(f"{what} is {versions()[what]} on a and 0.0 on c: install the same version")
    with pytest.raises(ValueError, match=says):
        check([about("a"), about("b"), about("c", **{what: "0.0"})])


def test_hosts_of_which_some_alone_have_gpus_are_refused():
    says = "device is cpu on a and cuda on b: give all hosts the same, such as device='cpu'"
    with pytest.raises(ValueError, match=says):
        check([about("a"), about("b", device="cuda")])


def test_a_secret_on_some_hosts_alone_is_refused():
    with pytest.raises(ValueError, match="DLVIZ_SECRET is set on b and not on a: set it to the sa"):
        check([about("a"), about("b", secret=True)])


def test_the_interface_is_the_one_with_the_route(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert route_to("127.0.0.1", 1) == ("lo", "127.0.0.1") == ("lo", interfaces()["lo"])


def test_an_interface_that_is_not_there_is_named_with_those_that_are(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")
    says = f"GLOO_SOCKET_IFNAME='ib7' is no interface of {socket.gethostname()} .* it has .*lo"
    with pytest.raises(ValueError, match=says):
        route_to("127.0.0.1", 1)

"""`python -m benchmarks hosts` where two hosts cannot be made."""

from __future__ import annotations

from benchmarks import clocks, hosts
from benchmarks.table import falls_short, lines


def test_without_namespaces_the_rows_say_so_and_the_clocks_are_read(monkeypatch):
    monkeypatch.setattr(hosts, "HOSTS", 3)
    monkeypatch.setattr(clocks, "TIMES", 1)
    monkeypatch.setattr(hosts, "why_not", lambda: "ip not found")
    monkeypatch.setattr(hosts, "several_hosts", None)
    aligned, missing = hosts.rows()
    assert aligned.ours > 0 and aligned.most == 0.5
    assert not falls_short(missing)
    assert "not measured: ip not found" in list(lines([missing]))[0]

"""`python -m benchmarks hosts` where two hosts cannot be made."""

from __future__ import annotations

from benchmarks import clocks, federated, hosts
from benchmarks.__main__ import main
from benchmarks.table import Row, compare, falls_short, lines


def test_without_namespaces_the_rows_say_so_and_the_clocks_are_read(monkeypatch):
    monkeypatch.setattr(hosts, "HOSTS", 3)
    monkeypatch.setattr(clocks, "TIMES", 1)
    monkeypatch.setattr(hosts, "why_not", lambda: "ip not found")
    monkeypatch.setattr(hosts, "several_hosts", None)
    aligned, missing = hosts.rows()
    assert aligned.ours > 0 and aligned.most == 0.5
    assert not falls_short(missing)
    assert "not measured: ip not found" in list(lines([missing]))[0]


def test_a_group_that_cannot_run_is_a_line_and_the_next_one_is_measured(monkeypatch, capsys):
    def breaks():
        raise OSError("exec: torchrun: not found\nand more")

    monkeypatch.setattr(hosts, "rows", breaks)
    monkeypatch.setattr(federated, "rows", lambda: [Row("the next", 1.0, 1.0, 1.0)])
    assert main(["hosts", "federated"]) == 0
    said = capsys.readouterr().out
    (missing,) = (line for line in said.splitlines() if line.startswith("hosts "))
    assert "not measured: OSError: exec: torchrun: not found" in missing
    assert "and more" not in said and "\nthe next " in said


def test_a_ratio_is_the_median_of_the_rounds_and_stands_beside_its_quartiles():
    row = compare("what", ours=[1.0] * 5, peer=[1.0, 5.0, 2.0, 4.0, 3.0])
    assert (row.ratio, row.spread) == (3.0, (1.5, 4.5))
    assert "  3.00 (1.50-4.50)  " in next(lines([row]))
    assert "  2.00 (2.00-2.00)  " in next(lines([compare("once", [1.0], [2.0])]))

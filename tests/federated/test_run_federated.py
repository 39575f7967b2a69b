"""`dlviz run federated`: what it prints and stores."""

import re

import pytest

from dlviz.cli import main
from dlviz.federated import epsilon
from dlviz.trace import Trace


def test_four_clients_are_all_selected_in_each_of_ten_rounds(tmp_path, capsys):
    out = tmp_path / "trace.json"
    assert main(["run", "federated", "--ranks", "5", "--epochs", "1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "federated on 5 ranks, digits, 10 rounds, 4 clients:" in said
    for name, value in {
        "selected": "clients 0, 1, 2, 3 in 10 rounds",
        "answered": "clients 0, 1, 2, 3 in 10 rounds",
        "late": "none",
        "lost": "none",
        "bytes per round": "77,120 in the mean; the weights have 9,640",
        "unused work": "0 of 14,370 examples that were trained on",
    }.items():
        assert re.search(rf"^{name} +{re.escape(value)}$", said, re.M), name
    accuracy = re.search(r"^accuracy +([\d.]+)% of the test images$", said, re.M)
    assert accuracy and float(accuracy[1]) > 70
    trace = Trace.load(out)
    assert set(trace.spans.step[trace.spans.kind == "phase"].tolist()) == set(range(10))
    assert main(["show", str(out), "--no-open"]) == 0
    assert "1 selection" in (tmp_path / "trace.html").read_text()


def test_its_options_are_those_of_train_and_who_has_which_digits(capsys):
    line = "run federated --ranks 3 --clients 6 --partition dirichlet --alpha 0.5 --rounds 2"
    more = "--fraction 0.5 --selection round_robin --epochs 1 --fp16 --always"
    assert main([*line.split(), *more.split()]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^selected +clients 0, 1, 2, 3, 4, 5 in 1 round$", said, re.M)
    assert re.search(r"^bytes per round +43,380 in the mean", said, re.M)  # 3 x 2,410 x (4 + 2)
    assert not re.search(r"^unused work +0 of", said, re.M)


def test_secure_rounds_say_what_they_cost_and_show_the_server_no_client(capsys):
    line = "run federated --ranks 5 --rounds 2 --epochs 1"
    accuracies = []
    for hidden in ([], ["--secure", "3"]):
        assert main([*line.split(), *hidden]) == 0
        said = capsys.readouterr().out
        accuracies.append(re.search(r"^accuracy +([\d.]+)%", said, re.M)[1])
    assert accuracies[0] == accuracies[1]  # the same sums, but for the rounding of fixed point
    assert re.search(r"^loss +the server does not learn it$", said, re.M)
    assert re.search(r"^unused work +the server does not learn it$", said, re.M)
    # 2 x 4 x 2,410 x 4 bytes a round in the open; keys, shares and n_k come on top.
    cost = re.search(
        r"^secure sums +([\d,]+) bytes more than updates in the open: 154,240$", said, re.M
    )
    more = int(cost[1].replace(",", ""))
    assert 0.05 < more / 154_240 < 0.15
    assert re.search(rf"^bytes per round +{(154_240 + more) // 2:,} in the mean", said, re.M)


def test_private_rounds_say_their_epsilon(capsys):
    line = "run federated --ranks 3 --clients 40 --rounds 3 --epochs 1 --fraction 0.5"
    assert main([*line.split(), *"--private 1.5 --clip 2 --delta 0.001".split()]) == 0
    said = capsys.readouterr().out
    spent = epsilon(1.5, 0.5, 3, 0.001)
    assert re.search(rf"^epsilon +{spent:.3g} for a delta of 0.001$", said, re.M)
    assert main([*line.split(), *"--private 1.5 --clip 2 --seed 1".split()]) == 0
    selected = re.search(r"^selected +(.*)$", capsys.readouterr().out, re.M)[1]
    assert {*re.findall(r"in (\d) rounds?", selected)} >= {"1", "2"}  # drawn, and not all in each
    assert re.search(r"\b1\d clients in", selected)  # too many to name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--partition by_size", "--partition by_size is not known: use identical, by_label"),
        ("--alpha 1", "--alpha belongs to --partition dirichlet, not to identical"),
        ("--partition dirichlet --alpha 0", "--alpha 0.0 is not a Dirichlet concentration"),
        ("--clients 2000", "1437 examples are too few for --clients 2000"),
        ("--model lstm", "federated trains an mlp on digits"),
        ("--fraction 0", "--fraction 0.0 of the clients cannot take part"),
        ("--clip 1", "--clip belongs to --private or --secure"),
        ("--secure 1 --delta 0.1", "--delta belongs to --private"),
        ("--private -1", "--private -1.0 is not a noise level"),
        ("--private 1 --clip 0", "bound=0.0"),
        ("--private 1 --delta 0.6 --clients 2", "delta=0.6"),
        ("--private 1 --selection size", "--selection size with private="),
        ("--private 1 --secure 2", "secure= with private="),
        ("--ranks 5 --secure 2", "--secure 2 of 4 clients: .* use 3 to 4"),
        ("--ranks 5 --secure 9", "--secure 9 is more than the 4 clients that take part: use 3 to"),
        ("--secure 3 --clients 4 --deadline 1", "deadline= with secure= and 4 clients on 2 ranks"),
        (
            "--ranks 4 --secure 2 --clip 7",
            "--clip 7 bounds how much a client counts, and one has 479 examples: use 479 or more",
        ),
        ("--ranks 1", "federated on 1 rank has a server and no client"),
        ("--bucket-bytes 3", "unrecognized arguments: --bucket-bytes 3 .*--rounds"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(line, message, capsys):
    assert main(["run", "federated", "--ranks", "2", *line.split()]) == 2
    assert re.search(message, capsys.readouterr().err)

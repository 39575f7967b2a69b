"""Under torchrun `launch` joins the ranks that there are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys
import torch
import dlviz

def worker(comm, factor):
    x = torch.tensor([comm.rank * factor])
    dlviz.collectives.ring.all_reduce(comm, x)
    return x.item(), comm.rank

found = []
for factor in (1, 10):
    run = dlviz.launch(worker, ranks=int(sys.argv[1]), args=(factor,))
    found.append([run.results, None if run.trace is None else len(run.trace.messages)])
with open(os.environ["RANK"] + ".json", "w") as file:
    json.dump(found, file)
"""


def torchrun(tmp_path, script, ranks, *args, options=("--standalone",)):
    file = tmp_path / "script.py"
    file.write_text(script)
    command = [Path(sys.executable).parent / "torchrun", *options, f"--nproc-per-node={ranks}"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, file, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env=environ,
        cwd=tmp_path,
    )


def test_each_process_is_a_rank_and_rank_0_gets_everything(tmp_path):
    done = torchrun(tmp_path, SCRIPT, 3, "3")
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert found[0] == [[[[3 * factor, rank] for rank in range(3)], 4] for factor in (1, 10)]
    for rank in (1, 2):
        assert found[rank] == [[[[3 * factor, rank]], None] for factor in (1, 10)]
    assert not list(Path("/dev/shm").glob(f"dlviz-{os.getpid()}-*"))


def test_another_number_of_ranks_is_refused(tmp_path):
    done = torchrun(tmp_path, SCRIPT, 1, "4")
    assert done.returncode != 0
    assert "ranks=4 is not what torchrun started: it started 1" in done.stderr

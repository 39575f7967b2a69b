"""DDP beside torch's DistributedDataParallel: the rows of docs/ddp.md, each against one process of
plain torch, in float64."""

import copy
import io
import re
from pathlib import Path

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn
from torch.utils.checkpoint import checkpoint

import dlviz
from dlviz.parallel import STRATEGIES
from dlviz.parallel.data import DDP
from dlviz.parallel.step.batch_norm import SyncBatchNorm
from dlviz.parallel.step.hooks import writes_gradients
from dlviz.parallel.step.replicas import check_memory, watch_replica

LAYOUTS = [[3], [2, 1]]  # of three ranks, the groups that train side by side
RANKS = [1, 2, 3]
PAGE = Path(__file__).parents[3] / "docs" / "ddp.md"
GENERATOR = torch.Generator().manual_seed(1)
ROWS = 12
X = torch.randn(ROWS, 4, generator=GENERATOR, dtype=torch.float64)
Z = torch.randn(ROWS, 4, generator=GENERATOR, dtype=torch.float64)
TOKENS = torch.arange(3 * ROWS).remainder(7).view(ROWS, 3)


def net(*layers):
    """A model, the same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer() for layer in layers]).double()


def plain():
    return net(lambda: nn.Linear(4, 5), nn.Tanh, lambda: nn.Linear(5, 2))


class Scaled(nn.Module):
    """A layer whose graph holds a buffer, one of [1, 2] expanded to [3, 2], and one of statistics
    that ranks have apart."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 2)[None].expand(3, 2))
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        y = self.layer(x) * self.scale[0] * (1 + self.seen)
        self.seen = self.seen + 1
        return y


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4, sparse=True)
        self.out = nn.Linear(4, 2)

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.w = nn.Parameter(torch.randn(4, 2, generator=generator, dtype=torch.complex128))

    def forward(self, x):
        return (x.to(self.w.dtype) @ self.w).abs()


class Checkpointed(nn.Module):
    """Two checkpointed parts that share a layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, reentrant=False):
        for _ in range(2):
            x = checkpoint(self._part, x, use_reentrant=reentrant)
        return x

    def _part(self, x):
        return torch.tanh(self.layer(x))


def gradients(model):
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
    }


def penalised(model, x):
    """The mean square of the outputs, and of their slope in x, as WGAN-GP has it."""
    x = x.clone().requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y.square().mean() + slope.square().sum(1).mean()


def stepped(model, call, cut, change):
    """The model after four steps, of which `change` is called before the third."""
    for step in range(4):
        if step == 2:
            change(model)
        model.zero_grad()
        call(cut(X)).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.requires_grad and p.grad is not None:
                    p -= 0.1 * p.grad
    return model.state_dict()


def unfreeze(model):
    model[0].requires_grad_(True)
    model[2].bias.requires_grad_(False)  # and freeze one


def replace(model):
    torch.manual_seed(5)
    model[2] = nn.Linear(5, 2).double()
    model.append(nn.Linear(2, 2).double())


def frozen():
    model = plain()
    model[0].requires_grad_(False)
    return model


def every_case(wrap, cut, sync):
    """The results of each case, on a rank or in one process: `wrap` makes a model parallel, `cut`
    takes this rank's rows, `sync(model, last)` is the context of a pass."""
    found = {}

    def case(name, model, loss):
        call = wrap(model)
        loss(call).backward()
        found[name] = gradients(model)
        return call

    two = lambda call: (call(cut(X)) - call(cut(Z))).square().mean()  # noqa: E731
    square = lambda call: call(cut(X)).square().mean()  # noqa: E731
    case("two forwards", net(Scaled), two)
    case("two forwards, batch norm in evaluation", net(lambda: nn.BatchNorm1d(4).eval()), two)
    case("sparse", net(Embedded), lambda call: call(cut(TOKENS)).square().mean())
    case("complex", Complex(), square)
    case("checkpoint", net(Checkpointed), square)
    case("penalty", plain(), lambda call: penalised(call, cut(X)))
    model = plain()
    call = wrap(model)
    for last, (start, stop) in enumerate([(0, 3), (3, 12)]):  # passes of 3 and 9 rows
        with sync(call, last):
            penalised(call, cut(X[start:stop])).backward()
    found["penalty in two passes"] = gradients(model)
    for name, change in (("unfrozen", unfreeze), ("replaced", replace)):
        model = frozen() if name == "unfrozen" else plain()
        found[name] = stepped(model, wrap(model), cut, change)
    return found


def on_ranks(comm):
    def sync(call, last):
        return torch.enable_grad() if last else call.no_sync()

    return every_case(
        lambda model: DDP(model, comm, bucket_bytes=100),
        lambda t: t.tensor_split(comm.size)[comm.rank],
        sync,
    )


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(on_each_size, 3, args=(LAYOUTS, on_ranks))


@pytest.fixture(scope="module")
def one():
    found = every_case(lambda model: model, lambda t: t, lambda *_: torch.enable_grad())
    # k times the mean over all rows of all passes
    model = plain()
    (2 * penalised(model, X)).backward()
    return {**found, "penalty in two passes": gradients(model)}


def assert_equal(found, expected):
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            off = found[name].to_dense() - value.to_dense()
            assert off.norm() <= 1e-12 * max(1, value.to_dense().norm()), name


@pytest.fixture(params=RANKS)
def same(request, run, one):
    """Compares a case of each rank with that of one process."""

    def hold(*cases):
        results = of_size(run, request.param)
        assert len(results) == request.param
        for found in results.values():
            for case in cases:
                assert_equal(found[case], one[case])

    return hold


def test_two_forwards_before_a_backward_give_the_gradients_of_one_process(same):
    same("two forwards", "two forwards, batch norm in evaluation")


def test_sparse_gradients_are_averaged(same):
    same("sparse")


def test_complex_gradients_are_averaged(same):
    same("complex")


def test_checkpointed_parts_give_the_gradients_of_one_process(same):
    same("checkpoint")


def test_autograd_grad_is_no_pass_of_an_accumulation(same):
    same("penalty", "penalty in two passes")


def test_what_is_unfrozen_and_frozen_after_the_wrap_is_averaged(same):
    same("unfrozen")


def test_layers_replaced_and_added_after_the_wrap_are_averaged(same):
    same("replaced")


def test_what_was_frozen_since_the_last_pass_hides_no_backward():
    """Its edge of the graph is gone; the others' gradients are written all the same."""
    seen, ws = [], [torch.ones(1, requires_grad=True) for _ in range(3)]
    ws[1].register_hook(lambda _: seen.append(writes_gradients(ws)))
    for frozen in (0, 2):
        ws[frozen].requires_grad_(False)
        sum(ws).sum().backward()
        torch.autograd.grad(sum(ws).sum(), [ws[1]])
        ws[frozen].requires_grad_(True)
    assert seen == [True, False, True, False]


def error_of(function, *given):
    """The error's message, or None."""
    try:
        function(*given)
    except ValueError as error:
        return str(error)
    return None


def local(comm):
    """On two ranks: a rank's own `.grad` inside no_sync, errors of a rank that differs, copies."""
    mine, found = X.tensor_split(2)[comm.rank], {}
    model = plain()
    ddp = DDP(model, comm)

    def step(x):
        ddp(x).square().mean().backward()

    with ddp.no_sync():
        step(mine)
        found["local"], own = gradients(model), model[0].bias.grad
        step(mine[:2])
        found["two passes"] = gradients(model)
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    found["clipped"] = gradients(model)
    step(mine[:0] if comm.rank else mine)
    found["after clipping"] = gradients(model)
    found["same"] = own is model[0].bias.grad
    found["its own"] = own.untyped_storage().nbytes() == own.nbytes

    model.zero_grad()
    seen = []
    handle = model[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    step(mine)
    handle.remove()
    found["hook"], found["averaged"] = seen[0], gradients(model)

    ranks_alone = {
        "unfrozen": lambda model: model[0].requires_grad_(comm.rank == 0),
        "frozen": lambda model: model[2].bias.requires_grad_(comm.rank == 0),
        "other values": lambda model: model.append(nn.Linear(2, 2).double()),
    }
    for name, change in ranks_alone.items():
        other = frozen()
        wrapped = DDP(other, comm)
        torch.manual_seed(comm.rank)
        change(other)
        found[name] = error_of(lambda w=wrapped: w(mine).sum().backward())
    found["create_graph"] = error_of(lambda: ddp(mine).sum().backward(create_graph=True))

    reentrant = DDP(Checkpointed().double(), comm)
    x = mine.clone().requires_grad_()
    found["reentrant"] = error_of(lambda: reentrant(x, True).sum().backward())
    return found


@pytest.fixture(scope="module")
def alone():
    return dlviz.launch(local, 2).results


def one_rank(rank, rows=None):
    model = plain()
    model(X.tensor_split(2)[rank][:rows]).square().mean().backward()
    return gradients(model)


def added(*parts):
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def test_inside_no_sync_grad_is_the_ranks_own_mean(alone):
    for rank, found in enumerate(alone):
        assert_equal(found["local"], one_rank(rank))
        assert_equal(found["two passes"], added(one_rank(rank), one_rank(rank, 2)))


def test_grad_is_a_tensor_of_its_own(alone):
    assert all(found["same"] and found["its own"] for found in alone)


def test_what_is_clipped_inside_no_sync_stays_so(alone):
    """Each rank's two passes, of 6 and 2 rows, count by their mean weight, 4; then rank 0's third
    of 6 rows and none of rank 1."""
    for found in alone:
        mean = {
            name: 3 * (4 * sum(each["clipped"][name] for each in alone) + 6 * own) / 22
            for name, own in one_rank(0).items()
        }
        assert_equal(found["after clipping"], mean)


def test_a_hook_on_a_parameter_sees_the_ranks_own_gradient(alone):
    whole = plain()
    whole(X).square().mean().backward()
    for rank, found in enumerate(alone):
        assert torch.allclose(found["hook"], one_rank(rank)["0.bias"], rtol=1e-12)
        assert_equal(found["averaged"], gradients(whole))


def test_what_one_rank_alone_unfreezes_is_named_on_all(alone):
    for found in alone:
        for case, said in (
            ("unfrozen", "has 0.weight of float64(5, 4) with values of digest .* has 2.weight"),
            ("frozen", "has 2.bias of float64(2,) where rank 1 has nothing more"),
            ("other values", "has 3.weight of float64(2, 2) with values of digest "),
        ):
            start = "rank 0 and rank 1 hold different parameters to train: rank 0 "
            assert found[case].startswith(start)
            assert re.search(re.sub("[()]", ".", said), found[case]), found[case]


def test_gradients_with_a_graph_are_refused(alone):
    assert all("use torch.autograd.grad" in found["create_graph"] for found in alone)


def test_a_parameter_of_two_reentrant_checkpoints_is_refused(alone):
    assert all("use_reentrant=False" in found["reentrant"] for found in alone)


def copies(comm):
    """A model with the hooks of DDP, `watch_replica` and synchronised batch norm, copied by each
    method; copies compute while "copies" is on the timeline."""
    model = net(lambda: nn.Linear(4, 5), lambda: nn.BatchNorm1d(5), lambda: nn.Linear(5, 2))
    watch_replica(comm, model)
    ddp = DDP(SyncBatchNorm.convert_sync_batchnorm(model, comm), comm)
    ddp(X).sum().backward()
    file = io.BytesIO()
    torch.save(ddp.module, file)
    file.seek(0)
    with comm.span("phase", "copies", step=7):
        found = [
            copy.deepcopy(ddp.module),
            torch.optim.swa_utils.AveragedModel(ddp.module).module,
            torch.load(file, weights_only=False),
        ]
        for each in found:
            each.eval()(X).sum().backward()
    says = [error_of(copy.deepcopy, ddp), error_of(found[0].train(), X)]
    state = copy.deepcopy(ddp).state_dict() if None in says else ddp.state_dict()
    return ddp.module, found, says, [*state]


@pytest.fixture(scope="module")
def copied():
    return dlviz.launch(copies, 2)


def test_the_module_is_copied_saved_and_returned_without_its_hooks(copied):
    for module, found, *_ in copied.results:
        for each in found:
            assert all(map(torch.equal, each.state_dict().values(), module.state_dict().values()))
        module.eval()(X).sum().backward()  # here there are no ranks
    of_copies = copied.trace.only(step=7)
    assert {*of_copies.spans.kind} == {"phase"} and not len(of_copies.messages.src)


def test_a_ddp_is_not_copied(copied):
    for *_, (ddp, norm), _ in copied.results:
        assert "belongs to its rank of one run" in ddp and "of a DDP its module" in ddp
        assert "this SyncBatchNorm is a copy, which has no ranks" in norm


def test_names_of_a_state_dict_begin_with_module(copied):
    for *_, names in copied.results:
        assert names[0] == "module.0.weight"


class Word(nn.Module):
    """An embedding, sparse or not, and a buffer made by expand."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(8, 4, sparse=sparse)
        self.out = nn.Linear(4, 2)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 2)[None].expand(3, 2))

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1)) * self.scale[0]


AVERAGE = ("ddp", "naive", "central", "late_all_reduce", "sufficient_factors", "sync_server",
           "stale_synchronous")  # fmt: skip
APART = ("easgd", "local_sgd", "gossip", "ensemble")


def test_every_strategy_takes_sparse_gradients_and_expanded_buffers():
    labels = torch.arange(ROWS) % 2

    def worker(comm, name, rule):
        def state(sparse):
            model = Word(sparse).double()
            return STRATEGIES[name](comm, model, [(TOKENS, labels)] * 2, rule, lr=0.1)["state"]

        return state(True), state(False)

    def every(comm):
        return [worker(comm, name, rule) for name in AVERAGE + APART for rule in ("sgd", "adam")]

    for found in dlviz.launch(every, 2).results:
        for sparse, whole in found:
            assert_equal(sparse, whole)


class Odd(nn.Module):
    """A model with a parameter or buffer that is given."""

    def __init__(self, **tensors):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"w": nn.Parameter(torch.ones(1, 3).expand(4, 3))}, "parameter w of .* is expanded"),
        ({"b": torch.eye(3).to_sparse()}, "buffer b is torch.sparse_coo"),
    ],
)
def test_memory_that_cannot_be_written_or_sent_is_refused(tensors, says):
    with pytest.raises(ValueError, match=says):
        check_memory(Odd(**tensors))


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(dlviz.RankError, match="no parameter to train: set requires_grad"):
        dlviz.launch(lambda comm: DDP(nn.Linear(2, 2).requires_grad_(False), comm), 1)


def rows_of_page():
    for line in PAGE.read_text().splitlines():
        if cells := re.fullmatch(r"\| (.+) \| (.+) \| (.+) \| `(\w+)`, `(test_\w+)` \|", line):
            yield cells.groups()


def test_each_row_of_the_page_has_its_test():
    rows = list(rows_of_page())
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(table) - 2 > 20  # except the heading and the line below it
    for behaviour, *_, module, test in rows:
        (file,) = Path(__file__).parents[1].glob(f"*/{module}.py")
        text = file.read_text()
        assert f"def {test}(" in text, behaviour

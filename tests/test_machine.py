"""Machines: links, topologies and what a message crosses."""

from __future__ import annotations

import math
from itertools import permutations

import pytest

from dlviz.machine import Chance, Device, Link, Machine, Path, Topology, classroom
from dlviz.machine.hardware import DEVICES, LINKS

FAST = Link(1e-6, 1e11)
SLOW = Link(1e-5, 1e9)
BACKBONE = Link(1e-4, 1e8)
NO_RANKS = [0, -1, 2.5, 4.0, True, False, "4", None, math.nan]


# ---------------------------------------------------------------- links and devices


@pytest.mark.parametrize("latency", [-1e-9, math.nan, math.inf, "0", None, True])
def test_a_latency_is_finite_and_not_negative(latency):
    with pytest.raises(
        ValueError, match=r"^Link: latency=.* has to be a number, 0 or more and finite.$"
    ):
        Link(latency, 1e9)


@pytest.mark.parametrize("bandwidth", [0, -1.0, math.nan, "1e9", None, True])
def test_a_bandwidth_is_above_zero(bandwidth):
    with pytest.raises(ValueError, match=r"^Link: bandwidth=.* has to be a number, above 0.$"):
        Link(0.0, bandwidth)


def test_a_link_may_be_free():
    assert Link(0, math.inf) == Link(0.0, math.inf)


@pytest.mark.parametrize("name", ["flops", "memory", "memory_bandwidth"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_device_has_speeds_above_zero(name, value):
    figures = {"flops": 1e9, "memory": 1e9, "memory_bandwidth": 1e9, name: value}
    with pytest.raises(ValueError, match=f"^Device 'toy': {name}=.* above 0 and finite.$"):
        Device("toy", **figures)


def test_reducing_takes_no_negative_time():
    with pytest.raises(
        ValueError, match="^Device 'toy': gamma=-1 has to be a finite number, 0 or more"
    ):
        Device("toy", 1, 1, 1, gamma=-1)


# ---------------------------------------------------------------- topologies

MAKERS = {
    "classroom": classroom,
    "Topology.switch": lambda ranks: Topology.switch(ranks, FAST),
    "Topology.ring": lambda ranks: Topology.ring(ranks, FAST),
    "Topology.racks": lambda ranks: Topology.racks(ranks, 2, FAST, SLOW),
    "Topology.tree": lambda ranks: Topology.tree(ranks, 2, FAST, SLOW),
}


@pytest.mark.parametrize("ranks", NO_RANKS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_machine_needs_a_whole_number_of_ranks(maker, ranks):
    with pytest.raises(ValueError, match=f"^{maker}: (ranks|nodes)=.* a whole number, 1 or more.$"):
        MAKERS[maker](ranks)


def test_racks_and_trees_say_which_number_is_wrong():
    with pytest.raises(ValueError, match=r"^Topology.racks: ranks_per_node=0 has to be"):
        Topology.racks(2, 0, FAST, SLOW)
    with pytest.raises(ValueError, match=r"^Topology.tree: radix=1.5 has to be"):
        Topology.tree(4, 1.5, FAST)
    with pytest.raises(
        ValueError, match="9 ranks do not fit under 3 levels of radix 2, which hold 8: give a link"
    ):
        Topology.tree(9, 2, FAST, SLOW, BACKBONE)


TOPOLOGIES = [
    *(Topology.switch(n, FAST) for n in (1, 2, 5)),
    *(Topology.ring(n, FAST) for n in (1, 2, 3, 4, 7)),
    *(Topology.racks(n, k, FAST, SLOW) for n, k in ((1, 4), (2, 1), (3, 2), (2, 5))),
    *(Topology.tree(n, k, FAST, SLOW, BACKBONE) for n, k in ((1, 2), (5, 2), (8, 2), (7, 3))),
]


def name(topology: Topology) -> str:
    return f"{topology.kind}-{topology.ranks}"


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=name)
def test_shared_links_are_numbered_and_are_those_that_some_path_crosses(topology):
    used = set()
    for src, dst in permutations(range(topology.ranks), 2):
        path = topology.path(src, dst)
        assert len({number for number, _ in path.shared}) == len(path.shared)
        for number, link in path.shared:
            assert topology.links[number] == link
            used.add(number)
    if topology.kind == "ring" or (topology.kind == "racks" and topology.sizes[1] > 1):
        assert used == set(range(len(topology.links)))


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=name)
def test_there_and_back_cross_no_link_in_the_same_direction(topology):
    for src, dst in permutations(range(topology.ranks), 2):
        there, back = topology.path(src, dst), topology.path(dst, src)
        assert (there.latency, there.bandwidth) == (back.latency, back.bandwidth)
        if not (topology.kind == "ring" and 2 * ((dst - src) % topology.ranks) == topology.ranks):
            assert not set(there.shared) & set(back.shared)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=name)
def test_a_message_to_itself_crosses_nothing(topology):
    assert topology.path(0, 0) == Path(0.0, math.inf, ())


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_is_not_there_is_refused(rank):
    for topology in (Topology.switch(4, FAST), Topology.ring(4, FAST)):
        for call in (topology.node, lambda r: topology.path(r, 0), lambda r: topology.path(0, r)):  # noqa: B023
            with pytest.raises(ValueError, match=f"^rank {rank} is not .*: it has ranks 0 to 3.$"):
                call(rank)


def test_on_a_switch_pairs_share_nothing():
    topology = Topology.switch(4, FAST)
    assert topology.links == ()
    assert topology.path(3, 1) == Path(FAST.latency, FAST.bandwidth, ())
    assert {topology.node(rank) for rank in range(4)} == {0}


def test_where_ranks_have_links_of_their_own_a_message_crosses_those_of_both_ends():
    topology = Topology.switch(3, [FAST, SLOW, BACKBONE])
    assert topology.links == () and topology.ranks == 3
    path = topology.path(1, 0)
    assert path == Path(SLOW.latency, SLOW.bandwidth, (), (SLOW, FAST))
    assert path.sending(1e6) == SLOW.seconds(1e6) == 1e-5 + 1e-3
    assert path.taking(1e6) == FAST.seconds(1e6) == 1e-6 + 1e-5
    assert path.seconds(1e6) == topology.path(0, 1).seconds(1e6) == SLOW.seconds(1e6)
    wide = Link(1e-2, math.inf)  # late, but of any width
    assert Topology.switch(2, [wide, SLOW]).path(0, 1).seconds(1e6) == 1e-2
    assert Topology.switch(2, [wide, SLOW]).path(0, 1).seconds(1e8) == SLOW.seconds(1e8)
    assert topology.levels == (Link(BACKBONE.latency, BACKBONE.bandwidth),)
    assert topology.path(2, 2) == Path(0.0, math.inf)


def test_equal_links_are_one_link():
    assert Topology.switch(4, [SLOW] * 4) == Topology.switch(4, SLOW)
    assert Topology.switch(1, (SLOW,)) == Topology.switch(1, SLOW)
    plain = Topology.switch(2, SLOW).path(0, 1)
    assert plain.seconds(77) == plain.sending(77) == plain.taking(77) == SLOW.seconds(77)


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ([FAST, SLOW], "2 links do not fit 3 ranks: give one for each rank, or one Link for all."),
        ([FAST] * 4, "4 links do not fit 3 ranks"),
        ([], "0 links do not fit 3 ranks"),
        ([FAST, 1e9, SLOW], r"link\[1\]=1000000000.0 has to be a Link."),
        (None, "link=None has to be a Link, or a list of one for each rank."),
        ("fast", "link='fast' has to be a Link, or a list"),
    ],
)
def test_links_that_do_not_fit_are_refused(links, says):
    for make in (Topology.switch, lambda ranks, link: classroom(ranks, link=link)):
        with pytest.raises(ValueError, match=f"^Topology.switch: {says}"):
            make(3, links)


def test_a_figure_says_whose_link_is_not_that_of_most():
    usual = Link(1e-3, 1e8)
    slow, fast = Link(1e-2, 1e7), Link(1e-4, 1e9)
    assert str(classroom(5, link=[fast, usual, usual, slow, usual])) == (
        "classroom, 5 ranks on a switch, 5 ms a forward, rank 0's link is 10x faster, rank 3's "
        "link is 10x slower"
    )
    both = classroom(5, link=[usual, slow, usual, slow, usual], factors=[1, 3, 1, 1, 1])
    assert str(both).endswith("rank 1 takes 3x as long, each link of ranks 1, 3 is 10x slower")
    assert both.topology.outline == {"kind": "switch", "sizes": [5], "slow": [1, 3]}
    other = classroom(3, link=[Link(5e-3, 1e8), usual, usual])
    assert str(other).endswith("rank 0's link takes 5 ms + 10 ms a MB")
    free = Link(0, 1e8)
    assert str(classroom(3, link=[free, free, Link(0, 1e7)])).endswith("2's link is 10x slower")
    tie = classroom(2, link=[slow, usual])
    assert str(tie).endswith("rank 0's link is 10x slower") and tie.topology.outline["slow"] == [0]
    assert "slow" not in classroom(3).topology.outline
    assert classroom(3, link=[fast, usual, usual]).topology.outline["slow"] == []


@pytest.mark.parametrize(
    ("ranks", "src", "dst", "hops"),
    [
        (5, 0, 1, [0]),
        (5, 4, 0, [4]),
        (5, 4, 1, [4, 0]),
        (5, 1, 0, [5 + 1]),
        (5, 0, 4, [5 + 0]),
        (5, 0, 3, [5 + 0, 5 + 4]),
        (4, 0, 2, [0, 1]),
        (4, 2, 0, [2, 3]),
        (2, 0, 1, [0]),
        (2, 1, 0, [1]),
    ],
)
def test_a_ring_takes_the_shorter_direction_and_each_hop_adds_a_latency(ranks, src, dst, hops):
    path = Topology.ring(ranks, SLOW).path(src, dst)
    assert [number for number, _ in path.shared] == hops
    assert path.latency == len(hops) * SLOW.latency
    assert path.bandwidth == SLOW.bandwidth


def test_all_ranks_of_a_node_share_one_link_out_and_one_in():
    topology = Topology.racks(3, 4, FAST, SLOW)
    assert topology.ranks == 12
    assert [topology.node(rank) for rank in range(12)] == [0] * 4 + [1] * 4 + [2] * 4
    assert topology.links == (SLOW,) * 6
    assert topology.path(0, 3) == Path(FAST.latency, FAST.bandwidth, ())
    assert topology.path(1, 6) == Path(SLOW.latency, SLOW.bandwidth, ((0, SLOW), (3, SLOW)))
    assert topology.path(3, 11).shared == ((0, SLOW), (5, SLOW))
    assert topology.path(11, 3).shared == ((4, SLOW), (1, SLOW))


def test_racks_are_no_faster_between_than_inside():
    between = Topology.racks(2, 2, SLOW, FAST).path(0, 2)
    assert (between.latency, between.bandwidth) == (FAST.latency, SLOW.bandwidth)


def test_a_message_climbs_a_tree_to_the_switch_that_its_ranks_share():
    topology = Topology.tree(7, 2, FAST, SLOW, BACKBONE)
    assert [topology.node(rank) for rank in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert topology.links == (SLOW,) * 8 + (BACKBONE,) * 4
    assert topology.path(0, 1).shared == ()
    assert topology.path(0, 3) == Path(SLOW.latency, SLOW.bandwidth, ((0, SLOW), (3, SLOW)))
    top = topology.path(2, 6)
    assert top.shared == ((2, SLOW), (7, SLOW), (8, BACKBONE), (11, BACKBONE))
    assert (top.latency, top.bandwidth) == (BACKBONE.latency, BACKBONE.bandwidth)


def test_racks_are_a_tree_of_two_levels():
    racks, tree = Topology.racks(3, 3, FAST, SLOW), Topology.tree(9, 3, FAST, SLOW)
    assert racks.links == tree.links
    for src, dst in permutations(range(9), 2):
        assert racks.path(src, dst) == tree.path(src, dst)


# ---------------------------------------------------------------- machines


def test_a_backward_takes_twice_its_forward():
    machine = Machine(Device("toy", 1, 1, 1), Topology.switch(3, FAST), step=0.01)
    assert machine.ranks == 3
    kinds = ("forward", "backward", "backward_input", "backward_weight", "update")
    assert [machine.seconds(kind) for kind in kinds] == [0.01, 0.02, 0.01, 0.01, 0.01]
    for kind in ("send", "wait", "Forward", ""):
        with pytest.raises(ValueError, match=f"no time for kind='{kind}': give seconds="):
            machine.seconds(kind)


@pytest.mark.parametrize("step", [0, -0.005, math.nan, math.inf, "5ms"])
def test_a_step_takes_time(step):
    with pytest.raises(ValueError, match="^Machine: step=.* has to be a number, above 0"):
        Machine(Device("toy", 1, 1, 1), Topology.switch(2, FAST), step=step)


@pytest.mark.parametrize("ranks", [1, 2, 7, 64])
def test_the_classroom_takes_5_ms_a_step_and_half_a_millisecond_a_message(ranks):
    machine = classroom(ranks)
    assert machine.ranks == ranks
    assert machine.seconds("forward") == 0.005
    if ranks > 1:
        path = machine.topology.path(0, ranks - 1)
        assert path.latency == 0.5e-3
        assert 1000 / path.bandwidth == 1e-6
        assert path.shared == ()


def test_a_classroom_may_be_slower_and_its_messages_free():
    machine = classroom(3, step=0.02, link=Link(0, math.inf))
    assert machine.seconds("backward") == 0.04 and machine.device == classroom(1).device
    assert machine.topology == Topology.switch(3, Link(0, math.inf))


def test_every_figure_of_real_hardware_has_a_source():
    assert len(DEVICES) >= 4 and len(LINKS) >= 9
    for label, known in DEVICES.items():
        assert known.device.name == label
        assert len(known.source) > 20
    for known in LINKS.values():
        assert "NCCL" in known.source and len(known.source) > 20


def test_real_links_carry_what_their_lanes_carry():
    assert LINKS["NVLink 4"].link.bandwidth == 18 * 25e9
    assert LINKS["PCIe 4.0 x16"].link.bandwidth == pytest.approx(31.5e9, rel=1e-3)
    assert LINKS["PCIe 5.0 x16"].link.bandwidth == pytest.approx(63.0e9, rel=1e-3)
    assert LINKS["InfiniBand NDR"].link.bandwidth == 50e9
    assert LINKS["10 Gb Ethernet"].link.bandwidth == 1.25e9
    assert DEVICES["laptop core"].device.flops == 3e9 * 2 * 8 * 2


def test_a_machine_says_in_a_line_what_it_is():
    inside, between = Link(1e-6, 1e9), Link(1e-5, 1e8)
    assert str(classroom(4)) == "classroom, 4 ranks on a switch, 5 ms a forward"
    device = classroom(1).device
    for topology, shape in (
        (Topology.ring(3, inside), "3 ranks in a ring"),
        (Topology.racks(2, 4, inside, between), "8 ranks in 2 racks"),
        (Topology.tree(8, 2, inside, between, between), "8 ranks on a tree"),
    ):
        assert shape in str(Machine(device, topology, step=0.01))


# ---------------------------------------------------------------- slow ranks, prices per example


@pytest.mark.parametrize(
    ("factors", "says"),
    [
        ([1, 2], r"Machine: 2 factors do not fit 3 ranks: give one for each rank, 1 for"),
        ([1, 1, 1, 1], r"Machine: 4 factors do not fit 3 ranks"),
        ([1, 0, 1], r"Machine: factors\[1\]=0 has to be a number, above 0 and finite"),
        ([1, 1, -2], r"Machine: factors\[2\]=-2 has to be a number, above 0"),
        ([1, math.nan, 1], r"Machine: factors\[1\]=nan has to be"),
        ([1, "3", 1], r"Machine: factors\[1\]='3' has to be"),
        (3, r"Machine: factors=3 has to be a list with a number above 0, or a Chance"),
    ],
)
def test_factors_that_do_not_fit_are_refused(factors, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        classroom(3, factors=factors)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((1.1, 3), r"probability=1.1 has to be 0 to 1"),
        ((-0.1, 3), "probability=-0.1 has to be a number, 0 or more"),
        ((0.5, 0), "factor=0 has to be a number, above 0"),
        ((0.5, 3, 0, 0), "together=0 has to be a whole number, 1 or more"),
    ],
)
def test_a_chance_that_cannot_be_is_refused(values, says):
    with pytest.raises(ValueError, match=f"^Chance: {says}"):
        Chance(*values)


def test_a_chance_falls_on_its_share_of_operations_the_same_in_every_run():
    chance = Chance(0.1, 3, seed=5)
    drawn = [chance.draw(rank, number) for rank in range(4) for number in range(2500)]
    assert set(drawn) == {1.0, 3.0}
    assert 900 < drawn.count(3.0) < 1100  # 3.3 deviations of the binomial
    assert drawn == [chance.draw(rank, number) for rank in range(4) for number in range(2500)]
    assert drawn[:2500] != drawn[2500:5000]  # another rank
    assert drawn != [Chance(0.1, 3).draw(r, number) for r in range(4) for number in range(2500)]
    assert Chance(0, 3).draw(0, 0) == 1.0 and Chance(1, 3).draw(0, 0) == 3.0


def test_operations_that_share_a_draw_are_slow_together():
    alone, chance = Chance(0.4, 3, seed=5), Chance(0.4, 3, seed=5, together=6)
    drawn = [chance.draw(1, number) for number in range(60)]
    assert drawn == [alone.draw(1, number // 6) for number in range(60)] and {*drawn} == {1, 3}
    assert str(chance) == "3x as long with probability 0.4, 6 operations together"


def test_a_figure_says_which_ranks_are_slow_and_what_an_operation_takes():
    assert str(classroom(4)) == "classroom, 4 ranks on a switch, 5 ms a forward"
    assert str(classroom(4, factors=[1] * 4)) == str(classroom(4))
    slow = classroom(4, step=None, factors=[1, Chance(0.1, 3), 2, 2])
    assert str(slow) == (
        "classroom, 4 ranks on a switch, 1 GFLOP/s, rank 1 takes 3x as long with probability 0.1, "
        "ranks 2, 3 take 2x as long"
    )
    device = Device("old", flops=23.4e6, memory=1e9, memory_bandwidth=1e9)
    assert str(Machine(device, Topology.switch(2, Link(1e-3, 1e9)), step=None)) == (
        "old, 2 ranks on a switch, 23.4 MFLOP/s"
    )


def test_a_machine_without_a_step_has_no_time_for_a_kind():
    with pytest.raises(ValueError, match="step=None has no time for kind='forward': it prices la"):
        classroom(2, step=None).seconds("forward")
    with pytest.raises(ValueError, match="Machine: step=0 has to be a number"):
        classroom(2, step=0)

"""Under torchrun: the same worker, the same verdicts and one Trace, on one host and on several.

Of the processes that torchrun starts on a host one, the parent, starts the ranks of that host, as
`launch` does without torchrun. The others wait (torchrun_ranks.py): they hand over their worker and
their environment, and receive their rank's result from the parent. If all ranks are on one host
that is all: a TorchrunSupervisor (supervise.py).

    host 0                                          host 1
    ranks 0 1 <-pipes, board-> parent  <--wire-->   parent <-pipes, board-> ranks 2 3
           \\___________________ lines and gloo ___________________/

On several hosts ranks share board, pipes and memory only within their host. Every two parents are
connected by a *wire*, a TCP connection on which every frame is sealed with the run's secret
(wire.py). It carries

    groups         collective calls, which the other parent writes into its host's copy
    states         who waits and has done what, to host 0
    control        questions to ranks and their answers, what they print, and how they end

(bridge.py). Message headers, with the bytes of short messages, and completions go from rank to rank
on *lines*, which are wires too (lines.py). The bytes of long messages, and collectives of the
backend in groups of several hosts, go from rank to rank by gloo. Host 0's parent supervises all
ranks, like the parent of any run (coordinator.py); the others follow it (remote_parent.py).

Hosts find each other in torchrun's store (rendezvous.py), and authenticate each other when they
connect (handshake.py); clocks.py measures the offsets of their clocks, stalled.py finds connections
that a firewall blocks.
"""

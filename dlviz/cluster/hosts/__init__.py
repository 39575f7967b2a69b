"""Under torchrun: the same worker, the same verdicts and one Trace, on one host and on several.

Of the processes that torchrun starts on a host one, the parent, starts the ranks of that host, as
`launch` does without torchrun. The others hold a seat (torchrun_ranks.py): they hand over their
worker and their environment, and have their rank's result from the parent. Where all ranks are on
one host that is all there is: a SeatSupervisor (supervise.py).

    host 0                                          host 1
    ranks 0 1 <-pipes, board-> parent  <--wire-->   parent <-pipes, board-> ranks 2 3
           \\___________________ lines and gloo ___________________/

On several hosts ranks have their board, their pipes and their memory on their own host alone. The
parents are joined two by two by a *wire*, a TCP connection on which every frame is sealed with the
run's secret (wire.py). On it goes

    groups         collective calls, which the other parent writes into its host's copy
    states         who waits and has done what, to host 0
    control        questions to ranks and their answers, what they print, and how they end

(bridge.py). Envelopes, with the bytes of short messages, and ticks go from rank to rank on *lines*,
which are wires too (lines.py). The bytes of long messages, and collectives of the backend in groups
of several hosts, go from rank to rank by gloo. Host 0's parent collects and judges with the
Supervisor of any run (coordinator.py), the others do as it says (remote_parent.py).

Who is who is said in torchrun's store (rendezvous.py), and made sure of by whoever connects
(handshake.py); clocks.py says how far clocks are apart, stalled.py what a firewall holds back.
"""

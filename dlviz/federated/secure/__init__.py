"""Secure aggregation: the server learns the sum of the clients' vectors and no vector of its own.

    x1 + m12 + m13 + b1   \\                     mij  a mask that clients i and j share: one of them
    x2 - m12 + m23 + b2    +--> x1 + x2 + x3         adds it, the other subtracts it
    x3 - m13 - m23 + b3   /     + b1 + b2 + b3   bi  a mask that client i alone knows

All of it modulo 2^bits, where x + mask is uniform whatever x is: what one client sends says
nothing. In the sum the pairwise masks cancel. If client 3 drops out they do not, so every client
has dealt shares of the key to its pairwise masks, k of which recover it, and of its self-mask b:
the others give the server shares of the key of who has dropped out, of the self-mask of who has
not, and never both. The self-mask is there for a client that is late: when the server has the key
that removes its pairwise masks, its vector may yet arrive.

    exchange          a client sends                        the server answers
    keys              two public keys                       the list of all keys
    shares            sealed shares of its secrets          the shares that are for it
    masked updates    its masked vector                     whose masked vector has come
    unmasking         a share of one secret of each         that there is a sum

    shares.py         a secret as n shares, k of which recover it (Shamir)
    fixed_point.py    values as whole numbers modulo 2^bits, and what the modulus holds
    masks.py          X25519, HKDF, ChaCha20: keys that two agree on, streams of masks, sealing
    messages.py       who sends what to whom in which exchange of which round
    protocol.py       a client and the server: each a coroutine from messages to messages
    aggregate.py      `secure_sum`: both on the ranks of a Comm

What it does not do: the server hands on the keys that it was sent (one that puts its own in their
place would read all; the paper's clients sign theirs), a client may add what it likes (within
`clip`), and a sum tells something about its addends: of two clients each knows the other's.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017, Figure 4 without signatures; Shamir, "How to Share a Secret", CACM 22(11), 1979.
"""

from dlviz.federated.secure.aggregate import RoundAborted, secure_sum
from dlviz.federated.secure.shares import Share, recover, share

__all__ = ["RoundAborted", "Share", "recover", "secure_sum", "share"]

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
    masked vectors    its masked vector                     whose masked vector has come
    unmasking         a share of one secret of each         that there is a sum

    shares.py         a secret as n shares, k of which recover it (Shamir)
    fixed_point.py    values as whole numbers modulo 2^bits, and what the modulus holds
    masks.py          X25519, HKDF, ChaCha20: keys that two agree on, streams of masks, sealing
    terms.py          what all have to agree on, and what makes it safe: k > n/2 above all
    messages.py       who sends what to whom in which exchange of which round
    client.py         a client: a coroutine, messages out and answers in
    server.py         the server: a coroutine, answers out and messages in
    aggregate.py      `secure_sum`: both on the ranks of a Comm

What it does not do. The server is believed when it says whose keys and whose shares have come: one
that puts keys of its own in their place, or names others to each client, can still read a vector
(the paper's clients sign their keys and compare the lists). A lie about who has dropped out after
that gets it none. Nobody sees whether a client has clipped, or what it has added. A sum tells
something about its addends: who knows that of two has the other.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017, Figure 4 without signatures; Shamir, "How to Share a Secret", CACM 22(11), 1979.
"""

from dlviz.federated.secure.aggregate import RoundAborted, secure_sum
from dlviz.federated.secure.shares import Share, recover, share

__all__ = ["RoundAborted", "Share", "recover", "secure_sum", "share"]

"""Secure aggregation: the server learns the sum of the clients' vectors, and no single vector.

    x1 + m12 + m13 + b1   \\                     mij  a mask that clients i and j share: one of them
    x2 - m12 + m23 + b2    +--> x1 + x2 + x3         adds it, the other subtracts it
    x3 - m13 - m23 + b3   /     + b1 + b2 + b3   bi  a mask that only client i knows

All of it is modulo 2^bits, where x + mask is uniform whatever x is: what one client sends reveals
nothing. In the sum the pairwise masks cancel. If client 3 drops out they do not. So every client
has dealt shares of two secrets, k of which recover one: the key to its pairwise masks, and its
self-mask b. The others send the server shares of the key of a client that dropped out, of the
self-mask of one that did not, and never both. The self-mask protects a late client: when the server
has the key that removes its pairwise masks, its vector may still arrive.

    exchange          a client sends                        the server answers
    keys              two public keys                       the list of all keys
    shares            sealed shares of its secrets          the shares that are for it
    masked vectors    its masked vector                     whose masked vector has arrived
    unmasking         a share of one secret of each         that the sum is known

    shares.py         a secret as n shares, k of which recover it (Shamir)
    fixed_point.py    values as whole numbers modulo 2^bits, and how large they may be
    masks.py          X25519, HKDF, ChaCha20: key agreement, streams of masks, sealing
    terms.py          what all have to agree on, and what makes it safe: above all k > n/2
    messages.py       who sends what to whom in which exchange of which round
    client.py         a client: a coroutine, messages out and answers in
    server.py         the server: a coroutine, answers out and messages in
    aggregate.py      `secure_sum`: both on the ranks of a Comm
    observed.py       `observed_sum`: the same, and what the server received

Limits. The server is trusted to report whose keys and shares have arrived: one that substitutes its
own keys, or names others to each client, can still read a vector (the paper's clients sign their
keys and compare the lists). A later lie about who has dropped out gains it nothing. Nobody checks
whether a client has clipped, or what it has added. A sum reveals something about its addends: with
two, whoever knows one has the other.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017, Figure 4 without signatures; Shamir, "How to Share a Secret", CACM 22(11), 1979.
"""

from dlviz.federated.secure.aggregate import RoundAborted, secure_sum
from dlviz.federated.secure.observed import Observed, observed_sum
from dlviz.federated.secure.shares import Share, recover, share

__all__ = [
    "Observed", "RoundAborted", "Share", "observed_sum", "recover", "secure_sum", "share",
]  # fmt: skip

"""Keys that two clients agree on through the server, and what they derive from them.

    agree     X25519: each has its own private key and the other's public one, and both get the
              same secret; HKDF derives from it a key for one purpose in one round
    stream    ChaCha20's key stream: a mask as long as the vector, from a key of 32 bytes
    seal      ChaCha20-Poly1305: nobody between the two can read it, or change it undetected

A key is used once, so nonces are 0.

Source: RFC 7748 (X25519), RFC 5869 (HKDF), RFC 8439 (ChaCha20, Poly1305).
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY = 32  # bytes of a key, private, public or shared
TAG = 16  # bytes that sealing adds
PAIR = Struct("<HH")


def private_key(secret: bytes) -> X25519PrivateKey:
    """The private key made of 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_of(private: X25519PrivateKey) -> bytes:
    """The public key that belongs to a private one."""
    return private.public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """The key that only the owners of two key pairs have, for one purpose. Raises ValueError for an
    invalid public key."""
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(SHA256(), KEY, salt=None, info=purpose).derive(secret)


def stream(key: bytes, count: int, word: np.dtype) -> np.ndarray:
    """`count` uniform words."""
    cipher = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()  # counter and nonce 0
    return np.frombuffer(cipher.update(bytes(count * word.itemsize)), word)  # zeros XOR the stream


def pair_mask(
    private: X25519PrivateKey,
    public: bytes,
    one: int,
    other: int,
    round_id: bytes,
    count: int,
    word: np.dtype,
) -> np.ndarray:
    """What client `one` adds; `other` adds its negative. `private` is the key of one of the
    two, `public` that of the other."""
    pair = PAIR.pack(min(one, other), max(one, other))  # one order: both derive one key
    mask = stream(agree(private, public, b"mask" + pair + round_id), count, word)
    return mask if one < other else -mask  # modulo the word: the two add up to 0


def seal(
    private: X25519PrivateKey, public: bytes, src: int, dst: int, round_id: bytes, plain: bytes
) -> bytes:
    """Encrypt `plain` so that only client `dst` can read it."""
    key = agree(private, public, b"seal" + PAIR.pack(src, dst) + round_id)
    return ChaCha20Poly1305(key).encrypt(bytes(12), plain, None)


def unseal(
    private: X25519PrivateKey, public: bytes, src: int, dst: int, round_id: bytes, sealed: bytes
) -> bytes:
    """Decrypt what client `src` has sealed. Raises ValueError where it does not verify."""
    key = agree(private, public, b"seal" + PAIR.pack(src, dst) + round_id)
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        raise ValueError(
            f"client {src}'s shares for client {dst} do not verify: they are not as it sealed them."
        ) from None

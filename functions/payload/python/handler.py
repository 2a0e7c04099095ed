"""Answers with bytes that do not compress, for measuring what a transfer costs.

The bytes are SHAKE-256 of the seed's decimal digits, so that any language can make them again.
"""

import hashlib
from binascii import b2a_base64

from uncia_envelope import Parameter, enveloped

# Base64 of this is 6,000,000 characters: the largest answer that fits Lambda's 6 MB with its frame.
MOST_BYTES = 4_500_000


@enveloped({"size": Parameter(1024, 0, MOST_BYTES, "B"), "seed": Parameter(1, 0, 2**53)})
def handler(size, seed):
    data = hashlib.shake_256(str(seed).encode()).digest(size)
    encoded = b2a_base64(data, newline=False).decode()
    digest = hashlib.sha256(data).hexdigest()
    valid = len(data) == size and len(encoded) == (size + 2) // 3 * 4
    return {"data": encoded, "size": len(data), "sha256": digest}, valid

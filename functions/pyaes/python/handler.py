"""AES-128 in counter mode in plain Python: compute-bound, in one thread, with little memory.

Each iteration expands the key, encrypts the message and decrypts it again, as the PyAES function
of FunctionBench does: the workload of "Demystifying Serverless Costs" (EuroSys'26).
The cipher is FIPS 197, the mode NIST SP 800-38A section 6.5.
"""

from uncia_envelope import Parameter, enveloped


def _tables():
    """The S-box (FIPS 197, 5.1.1), and SubBytes with MixColumns as four tables of words."""
    # exp and log of the field GF(2^8) to the base x + 1, a generator.
    exp, log = [0] * 255, [0] * 256
    x = 1
    for i in range(255):
        exp[i], log[x] = x, i
        x ^= (x << 1) ^ (0x11B if x & 0x80 else 0)
    sbox = [0x63] * 256
    for a in range(1, 256):
        b = exp[-log[a] % 255]
        spread = b | b << 8  # rotations to the left are slices of the byte written twice
        sbox[a] = 0x63 ^ b ^ (spread >> 7 ^ spread >> 6 ^ spread >> 5 ^ spread >> 4) & 0xFF
    columns = []
    for s in sbox:
        s2 = s << 1 ^ (0x11B if s & 0x80 else 0)
        columns.append(s2 << 24 | s << 16 | s << 8 | s2 ^ s)
    turned = [columns]
    for _ in range(3):
        turned.append([w >> 8 | (w & 0xFF) << 24 for w in turned[-1]])
    return bytes(sbox), turned


SBOX, (T0, T1, T2, T3) = _tables()


def expand_key(key):
    """The 44 words of the key schedule of a 16-byte key (FIPS 197, 5.2)."""
    words = [int.from_bytes(key[i : i + 4], "big") for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        w = words[-1]
        if i % 4 == 0:
            w = (w << 8 | w >> 24) & 0xFFFFFFFF
            w = (
                SBOX[w >> 24] << 24
                | SBOX[w >> 16 & 255] << 16
                | SBOX[w >> 8 & 255] << 8
                | SBOX[w & 255]
            )
            w ^= constant << 24
            constant = constant << 1 ^ (0x11B if constant & 0x80 else 0)
        words.append(words[i - 4] ^ w)
    return words


def encrypt_block(words, block):
    """AES-128 of one 16-byte block given as an integer, with the words of `expand_key`."""
    a = block >> 96 ^ words[0]
    b = block >> 64 & 0xFFFFFFFF ^ words[1]
    c = block >> 32 & 0xFFFFFFFF ^ words[2]
    d = block & 0xFFFFFFFF ^ words[3]
    for i in range(4, 40, 4):
        a, b, c, d = (
            T0[a >> 24] ^ T1[b >> 16 & 255] ^ T2[c >> 8 & 255] ^ T3[d & 255] ^ words[i],
            T0[b >> 24] ^ T1[c >> 16 & 255] ^ T2[d >> 8 & 255] ^ T3[a & 255] ^ words[i + 1],
            T0[c >> 24] ^ T1[d >> 16 & 255] ^ T2[a >> 8 & 255] ^ T3[b & 255] ^ words[i + 2],
            T0[d >> 24] ^ T1[a >> 16 & 255] ^ T2[b >> 8 & 255] ^ T3[c & 255] ^ words[i + 3],
        )
    s = SBOX
    last = 0
    for p, q, r, t, w in ((a, b, c, d, 40), (b, c, d, a, 41), (c, d, a, b, 42), (d, a, b, c, 43)):
        column = s[p >> 24] << 24 | s[q >> 16 & 255] << 16 | s[r >> 8 & 255] << 8 | s[t & 255]
        last = last << 32 | column ^ words[w]
    return last


def counter_mode(key, counter, message):
    """Encrypts or decrypts a message of any length; `counter` is the first counter block."""
    words = expand_key(key)
    out = bytearray()
    for start in range(0, len(message), 16):
        chunk = message[start : start + 16]
        stream = encrypt_block(words, counter).to_bytes(16, "big")[: len(chunk)]
        mixed = int.from_bytes(chunk, "big") ^ int.from_bytes(stream, "big")
        out += mixed.to_bytes(len(chunk), "big")
        counter = counter + 1 & (1 << 128) - 1
    return bytes(out)


# NIST SP 800-38A, F.5.1 (CTR-AES128.Encrypt), block 1: every invocation checks itself against it.
# Decrypting alone would not show a wrong cipher, since in this mode any key stream cancels out.
KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
KNOWN_PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
KNOWN_CIPHER = bytes.fromhex("874d6191b620e3261bef6864990db6ce")


@enveloped({"length": Parameter(1024, 1, 1 << 20, "B"), "iterations": Parameter(10, 1, 100_000)})
def handler(length, iterations):
    message = (KNOWN_PLAIN * (length // 16 + 1))[:length]
    valid = counter_mode(KEY, COUNTER, KNOWN_PLAIN) == KNOWN_CIPHER
    for _ in range(iterations):
        cipher = counter_mode(KEY, COUNTER, message)
        valid = valid and counter_mode(KEY, COUNTER, cipher) == message
    valid = valid and cipher[:16] == KNOWN_CIPHER[:length]
    return {"bytes": length * iterations * 2, "tail": cipher[-16:].hex()}, valid

"""Encodes a text of the letter a in base64 and decodes it, many times."""

from binascii import a2b_base64, b2a_base64

from uncia_envelope import Parameter, enveloped


@enveloped({"size": Parameter(1_000_000, 1, 16 << 20, "B"), "rounds": Parameter(100, 1, 10_000)})
def handler(size, rounds):
    text = b"a" * size
    encoded = decoded = 0
    for _ in range(rounds):
        code = b2a_base64(text, newline=False)
        encoded += len(code)
    for _ in range(rounds):
        back = a2b_base64(code)
        decoded += len(back)
    whole = size // 3
    valid = code[: 4 * whole] == b"YWFh" * whole and back == text
    valid = valid and encoded == rounds * 4 * -(-size // 3) and decoded == rounds * size
    return {"encoded": encoded, "decoded": decoded}, valid

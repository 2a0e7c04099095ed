"""Counts primes by Eratosthenes' sieve."""

from uncia_envelope import Parameter, enveloped

# Below 10, 100, ...: OEIS A006880.
KNOWN = [4, 25, 168, 1_229, 9_592, 78_498, 664_579, 5_761_455]


@enveloped({"exponent": Parameter(7, 1, 8)})
def handler(exponent):
    end = 10**exponent
    is_prime = bytearray(b"\1") * end
    is_prime[:2] = b"\0\0"
    number = 2
    while number * number < end:
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, end, number)))
        number += 1
    primes = sum(is_prime)
    return {"primes": primes}, primes == KNOWN[exponent - 1]

"""The first digits of pi, by a spigot."""

DIGITS = 500


def run(bench, repeat, prepared):
    return {tuple(bench.calc_ndigits(DIGITS)) for _ in range(repeat)}


def check(bench, prepared, results):
    return results == {tuple(int(digit) for digit in str(machin(DIGITS)))}


def machin(digits):
    """Pi's first digits as a whole number, by Machin's formula of 1706."""
    one = 10 ** (digits + 9)

    def arctan(inverse):
        power = total = one // inverse
        for divisor in range(3, 4 * digits, 2):
            power //= -inverse * inverse
            total += power // divisor
        return total

    return 4 * (4 * arctan(5) - arctan(239)) // 10**10

"""Makes a project in C of any number of files, and says what its program must print.

Each file has functions of arithmetic on 32 bits that only a compiler can make short work of. Python
carries out the same arithmetic, so that the output is known without compiling anything.
"""

import random

MASK = 0xFFFFFFFF
HEADER = "parts.h"
STEPS = 24  # of each function
ROUNDS = 3


def generate(files, size, seed):
    """The project's C files and headers, path -> text, and what it prints."""
    rng = random.Random(f"{files} {size} {seed}")
    sources, declarations, calls, value, lines = {}, [], [], seed & MASK, []
    for number in range(files):
        name = f"part_{number}"
        text = [f'#include "{HEADER}"', ""]
        for index in range(size):
            steps = [_step(rng) for _ in range(STEPS)]
            text += _function(f"{name}_{index}", steps)
            for turn in range(ROUNDS):
                for _, compute in steps:
                    value = compute(value, turn)
        text += [f"uint32_t {name}(uint32_t x) {{"]
        text += [f"    x = {name}_{index}(x);" for index in range(size)]
        text += ["    return x;", "}", ""]
        sources[f"{name}.c"] = "\n".join(text)
        declarations.append(f"uint32_t {name}(uint32_t x);")
        calls.append(f'    x = {name}(x);\n    printf("{name} %08" PRIx32 "\\n", x);')
        lines.append(f"{name} {value:08x}\n")
    header = ["#include <stdint.h>", "", *declarations, ""]
    main = [
        *("#include <inttypes.h>", "#include <stdio.h>", f'#include "{HEADER}"', ""),
        *(
            "int main(void) {",
            f"    uint32_t x = {seed & MASK}u;",
            *calls,
            "    return 0;",
            "}",
            "",
        ),
    ]
    sources["main.c"] = "\n".join(main)
    return sources, {HEADER: "\n".join(header)}, "".join(lines)


def _function(name, steps):
    return [
        f"static uint32_t {name}(uint32_t x) {{",
        f"    for (uint32_t i = 0; i < {ROUNDS}; i++) {{",
        *(f"        {text}" for text, _ in steps),
        *("    }", "    return x;", "}", ""),
    ]


def _step(rng):
    """A statement in C, and the same in Python."""
    kind, a, b = rng.randrange(4), rng.randrange(1, MASK), rng.randrange(1, 31)
    if kind == 0:
        return f"x = x * {a | 1}u + i;", lambda x, i: (x * (a | 1) + i) & MASK
    if kind == 1:
        return f"x ^= x >> {b};", lambda x, i: x ^ (x >> b)
    if kind == 2:
        text = f"x = (x << {b}) | (x >> {32 - b});"
        return text, lambda x, i: ((x << b) | (x >> (32 - b))) & MASK
    text = f"x = x % {a}u > {a // 2}u ? x + {a}u : x ^ (i + {b}u);"
    return text, lambda x, i: (x + a) & MASK if x % a > a // 2 else x ^ (i + b)

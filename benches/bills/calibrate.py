"""Fit the mixture of synthetic Huawei requests to what the cost paper publishes of the real ones.

    python benches/bills/calibrate.py [--rounds 45] > constants.py

Prints the constants of ``uncia.traces.synth.huawei2025.model`` and, on stderr, every statistic
beside its target. Nothing of the product is imported: the formulas are those of the published
notebooks, written down once more.

The model. A pod belongs to a cell (flavour, class). A class is a kind of work: its execution times
are lognormal, its CPU and memory utilisation are probit-normal, and the three latent normals are
correlated (a Gaussian copula), the same in every cell. The weights of the cells carry what a single
copula cannot: requests of 100 to 200 ms are on small flavours, those of seconds on large ones.
Requests whose CPU time the trace gives as 0 have execution times of their own.

The fit. Levenberg-Marquardt over weights and parameters; a statistic's residual is its relative
error over its tolerance, and a weak prior keeps what the statistics do not determine near a plain
guess. The integrals are over a fixed low-discrepancy sample, so that two runs print the same.
"""

import argparse
import sys
from statistics import NormalDist

import numpy as np

FLAVOURS = (
    (300, 128), (400, 256), (600, 512), (800, 768), (1000, 1024), (1200, 1280), (1400, 1536),
    (1600, 1792), (1800, 2048), (2200, 2560), (2600, 3072), (3000, 3584), (3400, 4096),
    (6600, 8192), (8200, 10240),
)  # fmt: skip
CPU = np.array([cpu / 1000 for cpu, _ in FLAVOURS])
MEMORY = np.array([float(memory) for _, memory in FLAVOURS])
CLASSES = ("instant", "short", "tenth", "long")

# Rows of the release: all, kept with CPU time, kept without, without data, above 10,240 MB; and of
# those without data, how many have a CPU time that is not 0 because it is NaN
# (587,610,349 rows are not 0 in the unfiltered table).
ALL, USED, ZERO, NAN, BIG = 947_970_744, 558_735_833, 235_263_649, 151_187_080, 2_784_182
NAN_USAGE = 587_610_349 - USED - BIG
NO_POD = NAN - NAN_USAGE

CLIP = 3.75
"""The latent normals are cut here: the mean of a rare hour-long request cannot be tested."""

TARGETS = {
    "mean execution, ms": (58.19, 0.01),
    "mean memory, GB-s": (0.02746200304839938, 0.01),
    "share of 1 ms and more": (527_054_654 / ALL, 0.005),
    "round-up to 100 ms, ms": (77.118, 0.005),
    "round-up to 1 ms, at least 100 ms, ms": (61.350, 0.005),
    "round-up of memory to 128 MB, GB-s": (0.02669, 0.01),
    "mean CPU time, ms": (51.765, 0.01),
    "huawei vCPU": (2.145263296495705, 0.003),
    "huawei memory": (2.6088776939483993, 0.003),
    "aws vCPU": (2.491895006337562, 0.003),
    "aws memory": (2.7159686829558014, 0.003),
    "gcp vCPU": (3.6259408698146585, 0.003),
    "gcp memory": (4.350769451586825, 0.003),
    "azure vCPU": (3.445964353693007, 0.003),
    "azure memory": (1.571093104636354, 0.003),
    "cloudflare vCPU": (1.0098841505130247, 0.0005),
    "CPU utilisation below 0.49951": (0.656, 0.005),
    "memory utilisation below 0.49936": (0.76, 0.005),
    "Pearson": (0.552, 0.01),
    "Spearman": (0.565, 0.01),
}

STEP = 0.25
PAIRS = 64
_GRID = np.linspace(-9, 9, 18001)
_PHI = np.array([NormalDist().cdf(x) for x in _GRID])


def phi(x):
    return np.interp(x, _GRID, _PHI)


def sample():
    """Points of three independent normals, shape (points, 3), and their weights.

    Execution times have a heavy tail, which decides the means: their normal is on a grid, shifted a
    little at each pair of the others. At every point of the grid the pairs are others, of a
    low-discrepancy sequence; for each its negative is there too, and their covariance is made 1.
    """
    root = 1.32471795724474602596
    inverse = np.vectorize(NormalDist().inv_cdf)
    grid = np.arange(-CLIP, CLIP, STEP)
    shifts = (0.5 + np.arange(PAIRS) * 0.6180339887498949) % 1
    parts = []
    for i, z in enumerate(grid):
        half = np.arange(1, PAIRS // 2 + 1)[:, None] + i * PAIRS // 2
        pairs = inverse((0.5 + half * [root**-1, root**-2]) % 1)
        pairs = np.concatenate([pairs, -pairs])
        pairs = pairs @ np.linalg.inv(np.linalg.cholesky(pairs.T @ pairs / PAIRS)).T
        parts.append(np.column_stack([z + STEP * shifts, pairs]))
    points = np.concatenate(parts)
    weights = np.exp(-(points[:, 0] ** 2) / 2)
    return points, weights / weights.sum()


Z, SHARE = sample()
POINTS = len(Z)
CELLS = (len(FLAVOURS), len(CLASSES))

# Parameters after the weights: name, guess, scale of the prior.
PARAMETERS = (
    *(
        (f"mu {name}", value, 0.6)
        for name, value in zip(CLASSES, (-0.5, 1.8, 4.8, 6.3), strict=True)
    ),
    *(
        (f"sigma {name}", np.log(value), 0.3)
        for name, value in zip(CLASSES, (0.6, 0.9, 0.2, 0.9), strict=True)
    ),
    *(
        (f"cpu {name}", value, 0.7)
        for name, value in zip(CLASSES, (0.0, -0.2, -0.4, -0.1), strict=True)
    ),
    ("cpu spread", np.log(0.8), 0.4),
    ("cpu by size", 0.0, 0.4),
    *(
        (f"memory {name}", value, 0.7)
        for name, value in zip(CLASSES, (-0.4, -0.4, -0.4, -0.3), strict=True)
    ),
    ("memory spread", np.log(0.6), 0.4),
    ("memory by size", 0.0, 0.4),
    ("rho execution cpu", 0.0, 0.4),
    ("rho execution memory", 0.0, 0.4),
    ("rho cpu memory", 0.65, 0.3),
    ("mu zero", -1.0, 0.7),
    ("sigma zero", np.log(0.9), 0.3),
)
GUESS = np.array([value for _, value, _ in PARAMETERS])
SCALE = np.array([scale for *_, scale in PARAMETERS])
NAMES = [name for name, *_ in PARAMETERS]

_BY_FLAVOUR = np.array(
    [0.30, 0.06, 0.16, 0.05, 0.16, 0.02, 0.02, 0.02, 0.06, 0.02, 0.02, 0.02, 0.05, 0.02, 0.02]
)
_BY_CLASS = np.array([0.08, 0.62, 0.15, 0.15])
PRIOR = np.log(_BY_FLAVOUR[:, None] * _BY_CLASS[None, :])
PRIOR_WIDTH = 2.0


def cholesky(ec, em, cm):
    """The factor of the correlation matrix, from partial correlations (always a valid matrix)."""
    ec, em, cm = np.tanh([ec, em, cm])
    lower = np.zeros((3, 3))
    lower[0, 0] = 1
    lower[1] = ec, np.sqrt(1 - ec**2), 0
    rest = np.sqrt(1 - em**2)
    lower[2] = em, cm * rest, rest * np.sqrt(1 - cm**2)
    return lower


def simulate(theta):
    """Sums over the sample in every cell, and the utilisations, for the statistics."""
    p = dict(zip(NAMES, theta, strict=True))
    lower = cholesky(p["rho execution cpu"], p["rho execution memory"], p["rho cpu memory"])
    ze, zc, zm = np.clip(Z @ lower.T, -CLIP, CLIP).T
    mu = np.array([p[f"mu {name}"] for name in CLASSES])
    sigma = np.exp([p[f"sigma {name}"] for name in CLASSES])
    size = np.log(CPU)
    e = np.exp(mu[:, None] + sigma[:, None] * ze)[None]  # (1, class, point), ms
    cpu = np.array([p[f"cpu {name}"] for name in CLASSES])[None, :, None]
    memory = np.array([p[f"memory {name}"] for name in CLASSES])[None, :, None]
    by = size[:, None, None]
    uc = phi(cpu + p["cpu by size"] * by + np.exp(p["cpu spread"]) * zc)
    um = phi(memory + p["memory by size"] * by + np.exp(p["memory spread"]) * zm)
    c, m = CPU[:, None, None], MEMORY[:, None, None]
    e = np.broadcast_to(e, uc.shape)
    e1, e100 = np.ceil(e), 100 * np.ceil(e / 100)
    az = np.where(e < 100, 100, e1)
    k, used = uc * c * e, um * m
    units = 128 * np.ceil(used / 128)
    there = e >= 1
    ratio = np.mean(1000 * CPU / MEMORY)
    a = np.maximum(ratio * m / 1000, c)
    aws_m = np.where(ratio * m / 1000 < c, 1000 * a / ratio, m)
    over = {
        "e": e, "k": k, "ue": used * e, "there": there,
        "up100": there * (e100 - e), "up1": there * (np.where(e <= 100, 100, e1) - e),
        "upm": there * (units * az - used * e),
        "hv": c * e1, "hm": m * e1, "av": a * e1, "am": aws_m * e1,
        "gv": c * e100, "gm": m * e100, "zv": c * az, "zm": units * az, "fv": np.ceil(k),
        "used": np.broadcast_to(used, uc.shape),
    }  # fmt: skip
    cells = {name: values @ SHARE for name, values in over.items()}
    ez = np.exp(p["mu zero"] + np.exp(p["sigma zero"]) * np.clip(Z[:, 0], -CLIP, CLIP))
    az_z = np.where(ez < 100, 100, np.ceil(ez))
    zero = {
        "e": ez @ SHARE, "there": (ez >= 1) @ SHARE,
        "up100": ((ez >= 1) * (100 * np.ceil(ez / 100) - ez)) @ SHARE,
        "up1": ((ez >= 1) * (np.where(ez <= 100, 100, np.ceil(ez)) - ez)) @ SHARE,
        "az there": ((ez >= 1) * az_z) @ SHARE, "e there": ((ez >= 1) * ez) @ SHARE,
    }  # fmt: skip
    cells["units"] = units @ SHARE
    # How many use less than a half needs no sample.
    half_cpu, half_memory = (NormalDist().inv_cdf(part) for part in (0.49951, 0.499359313375))
    cells["lc"] = phi((half_cpu - cpu - p["cpu by size"] * by) / np.exp(p["cpu spread"]))[..., 0]
    cells["lm"] = phi(
        (half_memory - memory - p["memory by size"] * by) / np.exp(p["memory spread"])
    )[..., 0]
    x, y = uc.ravel(), um.ravel()
    return cells, zero, x, y, np.argsort(x, kind="stable"), np.argsort(y, kind="stable")


def weighted_correlation(x, y, w):
    x, y = x - np.average(x, weights=w), y - np.average(y, weights=w)
    return np.average(x * y, weights=w) / np.sqrt(
        np.average(x * x, weights=w) * np.average(y * y, weights=w)
    )


def ranks(order, w):
    result = np.empty(len(order))
    result[order] = np.cumsum(w[order]) - w[order] / 2
    return result


def statistics(logits, simulated):
    """The statistics of :data:`TARGETS`, in their order."""
    cells, zero, x, y, order_x, order_y = simulated
    w = np.exp(logits - logits.max())
    w /= w.sum()
    s = {name: float((values * w).sum()) for name, values in cells.items()}
    # Requests without data: no pod and no usage, but a time as the zero ones; or a time as the
    # others', and no usage. Those above 10,240 MB are too few to matter here.
    like_zero, like_used = ZERO + NO_POD, USED + BIG + NAN_USAGE
    e = (like_used * s["e"] + like_zero * zero["e"]) / ALL
    ue = (USED + BIG) * s["ue"] + ZERO * zero["e"] * s["used"]
    there = like_used * s["there"] + like_zero * zero["there"]
    up100 = (like_used * s["up100"] + like_zero * zero["up100"]) / there
    up1 = (like_used * s["up1"] + like_zero * zero["up1"]) / there
    upm = (USED + BIG) * s["upm"] + ZERO * (
        s["units"] * zero["az there"] - s["used"] * zero["e there"]
    )
    with_usage = there - NAN_USAGE * s["there"]
    gbs = 1 / 1024 / 1000
    flat = (w.ravel()[:, None] * SHARE).ravel()
    values = (
        e, ue / (ALL - NAN_USAGE) * gbs, there / ALL, up100, up1, upm / with_usage * gbs, s["k"],
        s["hv"] / s["k"], s["hm"] / s["ue"], s["av"] / s["k"], s["am"] / s["ue"],
        s["gv"] / s["k"], s["gm"] / s["ue"], s["zv"] / s["k"], s["zm"] / s["ue"],
        s["fv"] / s["k"], s["lc"], s["lm"],
        weighted_correlation(x, y, flat),
        weighted_correlation(ranks(order_x, flat), ranks(order_y, flat), flat),
    )  # fmt: skip
    return np.array(values)


WANTED = np.array([target for target, _ in TARGETS.values()])
TOLERANCE = np.array([tolerance for _, tolerance in TARGETS.values()])


def residuals(logits, theta, simulated):
    fit = (statistics(logits, simulated) / WANTED - 1) / TOLERANCE
    prior = 0.3 * np.concatenate(
        [((logits - PRIOR) / PRIOR_WIDTH).ravel(), (theta - GUESS) / SCALE]
    )
    return np.concatenate([fit, prior])


def fit(rounds):
    logits, theta, damping = PRIOR.copy(), GUESS.copy(), 1.0
    simulated = simulate(theta)
    now = residuals(logits, theta, simulated)
    size = logits.size
    for number in range(rounds):
        jacobian = np.empty((len(now), size + len(theta)))
        for i in range(size):
            moved = logits.copy()
            moved.flat[i] += 0.02
            jacobian[:, i] = (residuals(moved, theta, simulated) - now) / 0.02
        for i in range(len(theta)):
            moved = theta.copy()
            moved[i] += 0.02
            jacobian[:, size + i] = (residuals(logits, moved, simulate(moved)) - now) / 0.02
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now
        while True:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            new_logits = logits + step[:size].reshape(CELLS)
            new_theta = theta + step[size:]
            new_simulated = simulate(new_theta)
            new = residuals(new_logits, new_theta, new_simulated)
            if new @ new < now @ now:
                damping = max(damping / 3, 1e-6)
                break
            damping *= 4
            if damping > 1e9:
                return logits, theta, simulated
        logits, theta, simulated, before, now = new_logits, new_theta, new_simulated, now, new
        print(f"round {number}: {now @ now:.3f}", file=sys.stderr, flush=True)
        if before @ before - now @ now < 1e-4 * (now @ now):
            break
    return logits, theta, simulated


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=45)
    logits, theta, simulated = fit(parser.parse_args().rounds)
    for (name, (target, _)), value in zip(
        TARGETS.items(), statistics(logits, simulated), strict=True
    ):
        print(f"{name:40} {target:10.5f} {value:10.5f} {value / target - 1:+.2%}", file=sys.stderr)
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    print("WEIGHTS = (")
    for row, (cpu, memory) in zip(weights, FLAVOURS, strict=True):
        print(f"    ({', '.join(f'{value:.6f}' for value in row)}),  # {cpu}-{memory}")
    print(")")
    for name, value in zip(NAMES, theta, strict=True):
        shown = np.exp(value) if "sigma" in name or "spread" in name else value
        shown = np.tanh(value) if "rho" in name else shown
        print(f"{name.upper().replace(' ', '_')} = {shown:.6f}")


if __name__ == "__main__":
    main()

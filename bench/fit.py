"""How a cost grows with the work: y = c + a·xᵖ through measured points, and what p says."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

Points = Sequence[tuple[float, float]]

# exponents that are tried, in steps of 0.01: a cost that grows faster than the cube has this one
LARGEST = 300
# a cost that grows by less than this share of its constant part, from the first point to the last, does not grow
FLAT = 0.1
# above 1 for the noise of the points
LINEAR = 1.1
# or a straight line comes as near to the points as this, or nearly as near as the best curve: what bends is then less
# than the noise
NEAR, NEARLY = 0.05, 1.25
# points that are needed for three numbers
LEAST = 4


@dataclass(frozen=True)
class Fit:
    """The constant part, factor and exponent.

    `error` is the mean relative distance of the points from the curve, `linear` that from the best straight line.
    """

    constant: float
    factor: float
    exponent: float
    error: float
    linear: float

    @property
    def is_linear_or_better(self) -> bool:
        return self.exponent <= LINEAR or self.linear <= max(NEAR, NEARLY * self.error)

    @property
    def verdict(self) -> str:
        if self.exponent == 0:
            return "constant"
        return "linear or better" if self.is_linear_or_better else "worse than linear"


def fit(points: Points) -> Fit:
    """The curve whose relative distances from the points are least; p is 0 for what hardly grows.

    The part above `c` is a straight line of slope p in log-log. Raises ValueError for too few points, and for one that
    is not above 0.
    """
    if len(points) < LEAST or any(x <= 0 or y <= 0 for x, y in points):
        raise ValueError(f"{LEAST} points above 0 are needed")
    every = [_at(points, step / 100) for step in range(1, LARGEST + 1)]
    best, linear = min(every, key=lambda found: found.error), every[99].error
    first, last = points[0][0], points[-1][0]
    grown = best.factor * (last**best.exponent - first**best.exponent)
    if grown <= FLAT * (best.constant + best.factor * first**best.exponent):
        mean = sum(y for _, y in points) / len(points)
        return Fit(mean, 0.0, 0.0, _error(points, mean, 0.0, 0.0), linear)
    return replace(best, linear=linear)


def _at(points: Points, exponent: float) -> Fit:
    """The best non-negative c and a for one exponent: least squares of (c + a·xᵖ) / y - 1, which has a closed form."""
    scale = points[-1][0] ** exponent
    rows = [(1 / y, x**exponent / scale / y) for x, y in points]
    cc, ca, aa = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    c1, a1 = sum(row[0] for row in rows), sum(row[1] for row in rows)
    determinant = cc * aa - ca * ca
    constant, factor = c1 / cc, 0.0
    if determinant > 1e-12 * cc * aa:
        constant, factor = (c1 * aa - a1 * ca) / determinant, (a1 * cc - c1 * ca) / determinant
    if factor < 0:
        constant, factor = c1 / cc, 0.0
    elif constant < 0:
        constant, factor = 0.0, a1 / aa
    factor /= scale
    error = _error(points, constant, factor, exponent)
    return Fit(constant, factor, exponent, error, error)


def _error(points: Points, constant: float, factor: float, exponent: float) -> float:
    squares = (((constant + factor * x**exponent) / y - 1) ** 2 for x, y in points)
    return math.sqrt(sum(squares) / len(points))

"""Show with small computations what each hypothesis of the theorems is for."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tools.theory.control_systems import Curved, System, Terms, feedback, running_cost, unit, velocity
from tools.theory.theorems import paper_bound


def cost_when_slowed(
    system: Curved, s: np.ndarray, g: np.ndarray, slower: float, c0: float, points: int = 400
) -> float:
    """Return the cost of the shortest path if followed `slower` times more slowly than is best at a time price of 1.

    A path in k times the time needs 1/k of the actions: with c0 = 0, as in (B0), the cost is divided by k. With free
    arrival time nothing bounds k, so d* and its gradient are zero everywhere, and (B3) holds nowhere.
    """
    ends = np.array([system.on_path(s, g, share) for share in np.linspace(0.0, 1.0, points + 1)])
    length = float(system.distance(s, g)) / np.sqrt(2 * system.c0)
    time = slower * length / np.sqrt(2.0) / points  # per piece; the best speed at c0 = 1 is |ds/dt| = sqrt(2 c0)
    total = 0.0
    for start, end in pairwise(ends):
        terms = system.terms((start + end) / 2)._replace(c0=c0)
        total += time * running_cost(terms, np.linalg.solve(terms.G, (end - start) / time))
    return total


class Counterexample(NamedTuple):
    measured: float  # |d(z) - d(g)|
    bound: float  # theorem 2's right side
    largest_error: float  # |d_psi - d*| found in the neighbourhood: at most delta
    L: float
    m: float


def tiny_neighbourhood(delta: float = 1e-4, radius: float = 1e-4) -> Counterexample:
    """Show that theorem 2 with the appendix's (B2) is false, because its "neighbourhood" of s may have any size.

    Take the plane, c0 = 1/2 (d* is the length), s = 0, z = (1, 0) and g = (2, 0) on one line, so eps = 0. Within the
    neighbourhood d_psi(., g) = d* + delta y / radius: the error is at most delta, and the second derivatives are d*'s.
    However small delta is, the direction turns by arctan(delta / radius). The Glaeser step needs |h| <= delta on a ball
    of radius sqrt(delta / L), which here is far larger.
    """
    plane = Curved(B=np.eye(2) / 2, c0=0.5)
    s, z, g = np.zeros(2), np.array([1.0, 0.0]), np.array([2.0, 0.0])
    tilt = np.array([0.0, delta / radius])
    around = radius * np.array([(np.cos(t), np.sin(t)) for t in np.linspace(0, 2 * np.pi, 64)])
    toward_z, toward_g = -unit(plane.gradient(s, z)), -unit(plane.gradient(s, g) + tilt)
    L = 1 / (1 - radius)  # noqa: N806  (a distance's second derivative is one over the distance, here to z)
    m = float(np.linalg.norm(plane.gradient(s, g)))
    error = float(np.abs(around @ tilt).max())
    return Counterexample(float(np.linalg.norm(toward_z - toward_g)), paper_bound(L, m, delta, 0.0), error, L, m)


def sphere_with_waypoint(turn: float, to_z: float = np.pi / 4) -> tuple[Curved, np.ndarray, np.ndarray, np.ndarray]:
    """Return a unit sphere, whose lengths are d*, with s, z and g: d(s, g) = pi - d(s, z), z turned away by `turn`.

    The proof's step 1 says |grad d*(s, z) - grad d*(s, g)| <= sqrt(2 L eps). Here the distance to z has curvature
    cot d(s, z) = L across the path and the distance to g has -L. Their difference has 2L, so the left side comes as
    close to 2 sqrt(L eps) as one likes: sqrt(2) times too much. (B2) also requires L to bound the change with the goal,
    which is 1 / |z| in these coordinates. That exceeds cot d(s, z), by less and less as z approaches s.
    """
    sphere = Curved(B=np.eye(2) / 2, curvature=1.0, c0=0.5)

    def at(distance: float, angle: float) -> np.ndarray:
        return 2 * np.tan(distance / 2) * np.array([np.cos(angle), np.sin(angle)])  # stereographic, from s = 0

    return sphere, np.zeros(2), at(to_z, turn), at(np.pi - to_z, 0.0)


def drift_angle(terms: Terms, p: np.ndarray) -> float:
    """Return the angle between the path's tangent f0 + G a* and the gradient's own motion G a*: 0 without drift."""
    action = feedback(terms, p)
    return _angle(velocity(terms, action), terms.G @ action)


def direction_gap(system: System, s: np.ndarray, z: np.ndarray, g: np.ndarray) -> float:
    """Return theorem 2's left side for d* itself."""
    return float(np.linalg.norm(unit(system.gradient(s, z)) - unit(system.gradient(s, g))))


def ring_gap(half: float = 1.0, share: float = 0.5) -> tuple[float, float]:
    """Return eps and |d(z) - d(g)| on a ring of circumference 2 `half`, with g opposite s and z on a shortest path.

    d*(., g) has a kink at s, but (B2) requires a differentiable d*. At a fork of equally long paths, as in mazes, an
    agent may take either path to g, but only one of them leads to z.
    """

    def distance(x: float, y: float) -> float:
        around = abs(x - y) % (2 * half)
        return min(around, 2 * half - around)

    z, g = share * half, half
    eps = distance(0, z) + distance(z, g) - distance(0, g)
    to_z = np.sign(distance(-1e-6, z) - distance(1e-6, z))
    to_g = np.sign(distance(-2e-6, g) - distance(-1e-6, g))  # seen from just left of s, where the other path is shorter
    return eps, float(abs(to_z - to_g))


# The appendix's remark: s -> d*(s, g) does not see exogenous noise in the goal's observation, and DCP inherits that.


class NoisyGoal(NamedTuple):
    """How far noise in the observed goal turns, in radians, what an actor may be shown."""

    gradient: float  # -grad_s d_psi, the theory's form of the condition
    condition: float  # the unit direction in psi-space, which DCP's actor sees
    share: float  # |d_psi(s, noisy goal) / d_psi(s, goal) - 1|: r's change


def distractor(distance: float, noise: float) -> NoisyGoal:
    """Show the goal with a number that says nothing of it, to a psi that has not learned to ignore this number.

    psi(x, w) = (x, w) in the plane, with w = 0 in states and `noise` in the observed goal: exogenous noise, so d* does
    not change. d_psi = sqrt(|x - g|^2 + w^2) orders all states as d* does, its gradient points as before, and greedy
    descent is the same. But the direction in psi-space leans by arctan(noise / distance) toward w.
    """
    s, g = np.zeros(2), np.array([distance, 0.0])
    seen = np.array([*(g - s), noise])  # psi(g) - psi(s)
    gradients = [-unit(g - s) * distance / length for length in (distance, float(np.linalg.norm(seen)))]
    turned = _angle(np.array([*(g - s), 0.0]), seen)
    return NoisyGoal(_angle(*gradients), turned, float(np.linalg.norm(seen)) / distance - 1)


def sensor_noise(system: System, s: np.ndarray, g: np.ndarray, error: np.ndarray) -> NoisyGoal:
    """Show the goal at g + error. This noise is not exogenous, because g + error is another goal: d* itself changes.

    With psi an isometry both forms turn alike: by about |error across the way| / d, much near the goal, little far off.
    """
    turned = _angle(system.gradient(s, g), system.gradient(s, g + error))
    return NoisyGoal(turned, turned, abs(float(system.distance(s, g + error) / system.distance(s, g)) - 1))


def _angle(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.arccos(np.clip(unit(one) @ unit(other), -1, 1)))

"""`dcp doctor --gpu`: does training run on this device, how fast, and do its numbers agree with a CPU's?

It measures steps per second of each environment, milliseconds per update under each of our options for GPUs, and
memory. It compares the numbers of short runs with those of a CPU (CPU_NUMBERS). It runs on a CPU too. Everything that
touches the device runs in its own process, so that a driver that crashes or hangs costs one row.
"""

import json
import math
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dcp import __version__
from dcp.cli.doctor_checks import Check, look
from dcp.errors import UserError
from dcp.lab.offscreen import ProbeError, in_a_process

LIMIT = 900.0  # seconds for one process: compiling physics takes a minute or two
STEPS, WARM = 20, 3  # steps of one call; calls before the clock starts
UPDATES = 50
SHORT_RUNS = ("crl", "dcp")  # methods
FEW = {"humanoid_u_maze": 128}  # environments, where they are not 512
BETTER = 0.95  # options that take less than this share of the current options' time are recommended
# Short runs on a CPU, float32: an iteration of `--preset smoke --env point_u_maze --seed 0`, and the mean |observation|
# after 20 steps of random actions from key 0. A GPU sums in another order and may multiply with fewer digits (TF32).
TOLERANCE = 0.02  # relative
CPU_NUMBERS: dict[str, float] = {
    "crl/critic_loss": 4.157938,
    "crl/actor_loss": 0.673227,
    "crl/entropy": -0.232034,
    "dcp/critic_loss": 4.158591,
    "dcp/actor_loss": 0.706223,
    "dcp/entropy": -0.375184,
    "pusher_hard/mean_observation": 0.490345,
}


def checks(envs: tuple[str, ...], report: Path) -> Iterator[Check]:
    """Yield one row per measurement, and write all measurements to `report` as one JSON object."""
    if not report.parent.is_dir():
        raise UserError(f"{report} cannot be written: make {report.parent} first, or choose another --gpu-report")
    device = in_a_process(describe, timeout=LIMIT)
    results: dict[str, Any] = {"schema": 1, "dcp": __version__, "python": platform.python_version(), **device}
    yield Check("device", "ok", f"{device['count']} x {device['kind']} ({device['platform']}), JAX {device['jax']}")
    numbers: dict[str, float] = {}
    for name, section, check in (
        *((env, "environments", lambda env=env: in_a_process(step_env, env, timeout=LIMIT)) for env in envs),
        *((row, "updates", lambda row=row: _update(row)) for row in _rows(device["platform"])),
        ("short run", "runs", lambda: in_a_process(train_shortly, timeout=LIMIT)),
    ):
        try:
            measured = check()
        except ProbeError as error:
            results.setdefault(section, {})[name] = {"error": str(error)}
            yield Check(name, "problem", str(error), "Send us the report: it holds this sentence.")
            continue
        results.setdefault(section, {})[name] = measured
        numbers |= measured.get("numbers", {})
        yield _row(name, measured)
    yield from _agreement(numbers, _expected(envs), results)
    yield from _advice(results)
    report.write_text(json.dumps(results, indent=1) + "\n")
    yield Check("report", "ok", f"{report.absolute()}: please send it to us")


def option_checks() -> Iterator[Check]:
    """Try our options on a GPU, if JAX uses one: yield a row for each that fails, and which to set."""
    try:
        platform = look()["platform"]
    except ProbeError:  # the check of JAX reports it
        return
    if platform not in ("gpu", "cuda"):
        return
    from dcp.machine.compiling import GRAPHS_VARIABLE

    updates: dict[str, Any] = {}
    for row in _rows(platform):
        try:
            updates[row] = _update(row)
        except ProbeError as error:
            advice = f"Do not set {GRAPHS_VARIABLE}={row} on this machine."
            yield Check(f"options {row}", "missing", str(error), advice)
        else:
            if updates[row].get("refused"):
                yield _row(f"options {row}", updates[row])
    yield from _advice({"updates": updates})


def _row(name: str, measured: dict[str, Any]) -> Check:
    """Return the row of a measurement that ended: it may have found wrong numbers, or options that XLA refuses."""
    if wrong := [*_not_finite(measured.get("numbers", {})), *measured.get("wrong", ())]:
        return Check(name, "problem", f"{', '.join(wrong)}; {measured['found']}", "Send us the report.")
    if refused := measured.get("refused"):
        return Check(name, "missing", measured["found"], f"XLA refuses the options {refused}: its own choice is used.")
    return Check(name, "ok", measured["found"])


def _not_finite(numbers: dict[str, float]) -> list[str]:
    return [f"{name} is {value}" for name, value in numbers.items() if not math.isfinite(value)]


def _rows(platform: str) -> list[str]:
    from dcp.machine.compiling import GPU_GRAPHS

    return list(GPU_GRAPHS) if platform in ("gpu", "cuda") else ["xla"]


def _update(row: str) -> dict[str, Any]:
    from dcp.machine.compiling import GRAPHS_VARIABLE

    measured = in_a_process(time_updates, timeout=LIMIT, env={GRAPHS_VARIABLE: row})
    return measured | {"refused": row if measured["graphs"] != row else ""}


def _expected(envs: tuple[str, ...]) -> list[str]:
    """Return the names of CPU_NUMBERS that measuring these environments and the short runs must give."""
    return [name for name in CPU_NUMBERS if name.split("/")[0] in (*envs, *SHORT_RUNS)]


def _agreement(numbers: dict[str, float], expected: list[str], results: dict[str, Any]) -> Iterator[Check]:
    """Yield a row that compares the numbers with a CPU's. An expected number that is missing does not agree."""
    gaps = {
        name: abs(value - wanted) / max(abs(wanted), 1e-3)
        for name, value in numbers.items()
        if (wanted := CPU_NUMBERS.get(name)) is not None
    }
    far = {name: gap for name, gap in gaps.items() if not gap <= TOLERANCE}  # NaN counts as far
    missing = [name for name in expected if name not in gaps]
    agrees = not far and not missing
    results["agreement"] = {
        "numbers": numbers,
        "gaps": gaps,
        "missing": missing,
        "tolerance": TOLERANCE,
        "agrees": agrees,
    }
    if missing:
        yield Check("agreement", "problem", f"not measured: {', '.join(missing)}", "See the rows above.")
    if far:
        words = ", ".join(f"{name} by {gap:.1%}" for name, gap in far.items())
        advice = "Send us the report, and try JAX_DEFAULT_MATMUL_PRECISION=highest."
        yield Check("agreement", "problem", f"{words} off a CPU's numbers (tolerance {TOLERANCE:.0%})", advice)
    elif agrees:
        yield Check("agreement", "ok", f"{len(gaps)} numbers within {max(gaps.values()):.1e} of a CPU's")


def _advice(results: dict[str, Any]) -> Iterator[Check]:
    """Yield the options to set if some are faster on this device than ours."""
    from dcp.machine.compiling import GRAPHS_VARIABLE, gpu_graphs

    updates, ours = results.get("updates", {}), gpu_graphs()
    times = {row: update["ms"] for row, update in updates.items() if "ms" in update and not update.get("refused")}
    if len(times) < 2:
        return
    if updates.get(ours, {}).get("refused"):
        ours = "xla"
    best = min(times, key=lambda row: times[row])
    words = ", ".join(f"{row} {ms:.2f} ms" for row, ms in times.items())
    if ours not in times or times[best] < BETTER * times[ours]:
        yield Check("options", "missing", f"an update by {GRAPHS_VARIABLE}: {words}", f"Set {GRAPHS_VARIABLE}={best}.")
    else:
        yield Check("options", "ok", f"an update by {GRAPHS_VARIABLE}: {words}; {ours} is in force")


# Each of these runs in its own process; arguments are text, results JSON.


def describe() -> dict[str, Any]:
    import jax

    devices = jax.local_devices()
    return {
        "platform": jax.default_backend(),
        "kind": devices[0].device_kind,
        "count": len(devices),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "runtime": getattr(devices[0].client, "platform_version", ""),
    }


def _peak_memory() -> float | None:
    """Return the device's peak memory in GB; None if the device does not report it."""
    import jax

    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["peak_bytes_in_use"] / 1e9 if "peak_bytes_in_use" in stats else None


def _memory_words(peak: float | None) -> str:
    return "" if peak is None else f", peak memory {peak:.2f} GB"


def step_env(name: str) -> dict[str, Any]:
    """Time steps of all environments under random actions, with automatic reset."""
    import jax
    import jax.numpy as jnp

    from dcp.envs.base import Episodes
    from dcp.envs.registry import make_env
    from dcp.machine.compiling import compiler_options, enable_cache

    enable_cache()
    env, num_envs = make_env(name), FEW.get(name, 512)
    episodes = Episodes(env, num_envs, env.spec.episode_length, "paper")

    def unroll(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            key_action, key_reset = jax.random.split(key)
            action = jax.random.uniform(key_action, (num_envs, env.spec.action_size), minval=-1.0)
            return episodes.step(state, action, key_reset), None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    started = time.perf_counter()
    program = jax.jit(unroll, compiler_options=compiler_options())
    first = program(jax.jit(episodes.reset)(jax.random.key(0)), jax.random.key(0))
    mean, diverged = float(jnp.mean(jnp.abs(first.env.obs))), int(jnp.sum(first.diverged))
    compiled = time.perf_counter() - started
    state = first
    for _ in range(WARM):
        state = program(state, jax.random.key(1))
    jax.block_until_ready(state.env.obs)
    started, calls = time.perf_counter(), 0
    while calls < 1 or time.perf_counter() - started < 2.0:
        state = program(state, jax.random.key(2))
        jax.block_until_ready(state.env.obs)
        calls += 1
    rate = calls * STEPS * num_envs / (time.perf_counter() - started)
    peak = _peak_memory()
    words = f"{rate:,.0f} steps/s of {num_envs} environments, {compiled:.0f} s to compile{_memory_words(peak)}"
    return {
        "found": words,
        "steps_per_second": rate,
        "compile_seconds": compiled,
        "peak_gb": peak,
        "numbers": {f"{name}/mean_observation": mean},
        "diverged_episodes": diverged,
        "wrong": [f"{diverged} of {num_envs} episodes diverged within {STEPS} steps"] if diverged else [],
    }


def time_updates() -> dict[str, Any]:
    """Time updates at the ant's sizes, as training runs them, under the current options."""
    import jax

    from dcp.algorithm import Algorithm
    from dcp.envs.registry import make_env
    from dcp.machine.compiling import compiler_options, enable_cache, graphs_in_use
    from dcp.presets import preset_config
    from dcp.types import Batch

    enable_cache()
    config = preset_config("paper", env="ant_u_maze", method="dcp", devices=1)
    algorithm = Algorithm(make_env("ant_u_maze"), config=config)
    spec, pairs = algorithm.env.spec, UPDATES * config.batch_size
    draws = jax.random.split(jax.random.key(1), 4)
    sizes = (spec.state_size, spec.action_size, spec.goal_size, spec.goal_size)
    batch = Batch(*(jax.random.normal(key, (pairs, size)) for key, size in zip(draws, sizes, strict=True)))
    order = jax.random.permutation(jax.random.key(2), pairs).reshape(UPDATES, -1)
    learner = algorithm.learner.init(jax.random.key(0))
    started = time.perf_counter()
    program = jax.jit(algorithm.updates, compiler_options=compiler_options())
    jax.block_until_ready(program(learner, batch, order, jax.random.key(3)))
    compiled = time.perf_counter() - started
    started, calls = time.perf_counter(), 0
    while calls < 2 or time.perf_counter() - started < 2.0:
        jax.block_until_ready(program(learner, batch, order, jax.random.key(3)))
        calls += 1
    ms = 1e3 * (time.perf_counter() - started) / (calls * UPDATES)
    words = f"{ms:.2f} ms per update (DCP, batch {config.batch_size}){_memory_words(_peak_memory())}"
    return {"found": words, "ms": ms, "compile_seconds": compiled, "graphs": graphs_in_use(), "peak_gb": _peak_memory()}


def train_shortly() -> dict[str, Any]:
    """Train for one iteration and return its numbers."""
    from dcp.algorithm import make_algorithm
    from dcp.machine.programs import Programs
    from dcp.presets import preset_config

    numbers: dict[str, float] = {}
    for method in SHORT_RUNS:
        programs = Programs(make_algorithm(preset_config("smoke", method=method, devices=1)))
        run = programs.init()
        for _ in range(programs.algorithm.config.num_prefill_unrolls):
            run = programs.prefill(run)
        metrics = programs.iteration(run)[1]
        for name in ("critic_loss", "actor_loss", "entropy"):
            numbers[f"{method}/{name}"] = float(metrics[name])
    return {"found": f"one iteration of crl and dcp on point_u_maze, {len(numbers)} numbers", "numbers": numbers}

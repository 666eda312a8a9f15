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
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dcp import __version__
from dcp.cli.doctor import Check
from dcp.errors import UserError
from dcp.files import write_whole
from dcp.lab.offscreen import ProbeError, in_a_process
from dcp.machine.compiling import (
    GPU_GRAPHS,
    GRAPHS_VARIABLE,
    compiler_options,
    enable_cache,
    gpu_graphs,
)

LIMIT = 900.0  # seconds for one process: compiling physics takes a minute or two
STEPS = 20  # of one call
UPDATES = 50
SHORT_RUNS = ("crl", "dcp")  # methods
FEW = {"humanoid_u_maze": 128}  # environments, where they are not 512
BETTER = 0.95  # options that take less than this share of the current options' time are recommended
# Short runs on a CPU, float32: an iteration of `--preset smoke --env point_u_maze --seed 0`, and the mean |observation|
# after 20 steps of random actions from key 0. A GPU sums in another order; products have full precision, not TF32's.
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
    options = list(GPU_GRAPHS) if device["platform"] in ("gpu", "cuda") else ["xla"]
    numbers: dict[str, float] = {}
    for name, section, measure in (
        *((env, "environments", partial(in_a_process, step_env, env, timeout=LIMIT)) for env in envs),
        *((row, "updates", partial(_update, row)) for row in options),
        ("short run", "runs", partial(in_a_process, train_shortly, timeout=LIMIT)),
    ):
        try:
            measured = measure()
        except ProbeError as error:
            results.setdefault(section, {})[name] = {"error": str(error)}
            yield Check(name, "problem", str(error), "Send us the report: it holds this sentence.")
        else:
            results.setdefault(section, {})[name] = measured
            numbers |= measured.get("numbers", {})
            yield _row(name, measured)
    results["agreement"], row = _agreement(numbers, envs)
    yield row
    yield from _advice(results["updates"])
    write_whole(report, (json.dumps(results, indent=1) + "\n").encode())
    yield Check("report", "ok", f"{report.absolute()}: please send it to us")


def _update(row: str) -> dict[str, Any]:
    """Time updates with a row of GPU_GRAPHS; XLA may refuse it."""
    measured = in_a_process(time_updates, timeout=LIMIT, env={GRAPHS_VARIABLE: row})
    return measured | {"refused": row if measured["graphs"] != row else ""}


def _row(name: str, measured: dict[str, Any]) -> Check:
    """Return the row of a measurement that ended: it may have found wrong numbers, or options that XLA refuses."""
    numbers = measured.get("numbers", {})
    wrong = [f"{number} is {value}" for number, value in numbers.items() if not math.isfinite(value)]
    if wrong := [*wrong, *measured.get("wrong", ())]:
        return Check(name, "problem", f"{', '.join(wrong)}; {measured['found']}", "Send us the report.")
    if refused := measured.get("refused"):
        return Check(name, "missing", measured["found"], f"XLA refuses the options {refused}: its own choice is used.")
    return Check(name, "ok", measured["found"])


def _agreement(numbers: dict[str, float], envs: tuple[str, ...]) -> tuple[dict[str, Any], Check]:
    """Compare with a CPU's numbers; one that is missing or not finite does not agree. -> for the report, and a row"""
    gaps = {
        name: abs(numbers.get(name, math.nan) - expected) / abs(expected)
        for name, expected in CPU_NUMBERS.items()
        if name.split("/")[0] in (*envs, *SHORT_RUNS)
    }
    far = [f"{name} by {gap:.1%}" for name, gap in gaps.items() if not gap <= TOLERANCE]  # NaN counts as far
    entry = {"numbers": numbers, "gaps": gaps, "tolerance": TOLERANCE, "agrees": not far}
    if far:
        words = f"{', '.join(far)} off a CPU's numbers (tolerance {TOLERANCE:.0%})"
        advice = "Send us the report."
        return entry, Check("agreement", "problem", words, advice)
    return entry, Check("agreement", "ok", f"{len(gaps)} numbers within {max(gaps.values()):.1e} of a CPU's")


def _advice(updates: dict[str, Any]) -> Iterator[Check]:
    """Yield the options to set if some are faster on this device than ours."""
    times = {row: update["ms"] for row, update in updates.items() if "ms" in update and not update.get("refused")}
    if len(times) < 2:
        return
    ours = "xla" if updates.get(gpu_graphs(), {}).get("refused") else gpu_graphs()
    best = min(times, key=lambda row: times[row])
    words = f"an update by {GRAPHS_VARIABLE}: {', '.join(f'{row} {ms:.2f} ms' for row, ms in times.items())}"
    if ours not in times or times[best] < BETTER * times[ours]:
        yield Check("options", "missing", words, f"Set {GRAPHS_VARIABLE}={best}.")
    else:
        yield Check("options", "ok", f"{words}; {ours} is in force")


# Each of these runs in its own process; arguments are text, results JSON.


def describe() -> dict[str, Any]:
    import jax

    from dcp.machine.compiling import keep_precision

    devices = jax.local_devices()
    keep_precision()
    return {
        "platform": jax.default_backend(),
        "kind": devices[0].device_kind,
        "count": len(devices),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "matmul_precision": jax.config.values.get(
            "jax_default_matmul_precision"
        ),  # None: XLA's own, which a CPU has at full
        "runtime": getattr(devices[0].client, "platform_version", ""),
    }


def _timed(program: Any, *inputs: Any) -> tuple[Any, float, dict[str, Any], str]:
    """Return the first result, the seconds of a later call, and compile time and peak memory for JSON and in words."""
    import jax

    started = time.perf_counter()
    first = jax.block_until_ready(program(*inputs))
    compiled = time.perf_counter() - started
    started, calls = time.perf_counter(), 0
    while calls < 2 or time.perf_counter() - started < 2.0:
        jax.block_until_ready(program(*inputs))
        calls += 1
    seconds = (time.perf_counter() - started) / calls
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")  # None: the device does not say
    words = f"{compiled:.0f} s to compile{f', peak memory {peak / 1e9:.2f} GB' if peak else ''}"
    return first, seconds, {"compile_seconds": compiled, "peak_gb": peak and peak / 1e9}, words


def step_env(name: str) -> dict[str, Any]:
    """Time steps of all environments under random actions, with automatic reset."""
    import jax
    import jax.numpy as jnp

    from dcp.envs.base import Episodes
    from dcp.envs.registry import make_env

    enable_cache()
    env, num_envs = make_env(name), FEW.get(name, 512)
    episodes = Episodes(env, num_envs, env.spec.episode_length, "paper")

    def unroll(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            key_action, key_reset = jax.random.split(key)
            action = jax.random.uniform(key_action, (num_envs, env.spec.action_size), minval=-1.0)
            return episodes.step(state, action, key_reset), None

        return jax.lax.scan(step, state, jax.random.split(key, STEPS))[0]

    key = jax.random.key(0)
    program = jax.jit(unroll, compiler_options=compiler_options())
    state, seconds, about, words = _timed(program, jax.jit(episodes.reset)(key), key)
    rate, diverged = STEPS * num_envs / seconds, int(jnp.sum(state.diverged))
    return about | {
        "found": f"{rate:,.0f} steps/s of {num_envs} environments, {words}",
        "steps_per_second": rate,
        "numbers": {f"{name}/mean_observation": float(jnp.mean(jnp.abs(state.env.obs)))},
        "diverged_episodes": diverged,
        "wrong": [f"{diverged} of {num_envs} episodes diverged within {STEPS} steps"] if diverged else [],
    }


def time_updates() -> dict[str, Any]:
    """Time updates at the ant's sizes, as training runs them, under the current options."""
    import jax

    from dcp.algorithm import Algorithm
    from dcp.envs.registry import make_env
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
    program = jax.jit(algorithm.updates, compiler_options=compiler_options())
    learner = algorithm.learner.init(jax.random.key(0))
    _, seconds, about, words = _timed(program, learner, batch, algorithm.draws(order, jax.random.key(3)))
    ms = 1e3 * seconds / UPDATES
    sentence = f"{ms:.2f} ms per update (DCP, batch {config.batch_size}), {words}"
    return about | {"found": sentence, "ms": ms, "graphs": graphs_in_use()}


def graphs_in_use() -> str:
    """Return the row of GPU_GRAPHS that programs are compiled with: "xla" also if XLA refuses the one in force."""
    import jax

    on_gpu = jax.default_backend() in ("gpu", "cuda")
    return gpu_graphs() if on_gpu and compiler_options() is not None else "xla"


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

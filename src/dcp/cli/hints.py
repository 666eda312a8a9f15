"""What would make a run faster on this machine, said before it starts."""

from dcp.config import Settings

# Training's unrolls by MuJoCo's own engine against ours of the paper's physics, two cores, measured in one run by
# benchmarks/engines.py. Where little is gained nothing is said: then the paper's own physics is the better choice.
FASTER = {"ant_push": 2.6}


def faster_physics(settings: Settings) -> str | None:
    """A sentence for a machine without an accelerator, where MuJoCo's own engine would step this environment faster."""
    import jax

    times = FASTER.get(settings.env)
    if times is None or settings.physics != "brax" or jax.default_backend() != "cpu":
        return None
    return (
        f"Hint: there is no GPU here, and --physics mujoco steps {settings.env} about {times:.1f} times as fast on a "
        "CPU; docs/environments.md says what differs from the paper."
    )

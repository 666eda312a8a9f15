"""The three bodies against Brax's own files: the same numbers, to the bit, in all that decides a simulation."""

from pathlib import Path

import brax
import mujoco
import numpy as np
import pytest
from brax.io import mjcf

from dcp.physics import models

# What a model holds besides its physics: names, looks and memory; keyframes, of which Brax's humanoid has five zeros.
NO_PHYSICS = ("name", "tex", "mat_", "cam", "light", "rgba", "matid", "user", "key", "numeric", "size", "narena")
NO_PHYSICS += ("_address", "nmat", "ncam", "nlight", "nbuffer", "signature", "text")


def fields(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    parts = {f"{part}.{name}": getattr(getattr(model, part), name) for part in ("opt",) for name in dir(model.opt)}
    parts |= {name: getattr(model, name) for name in dir(model) if not any(word in name for word in NO_PHYSICS)}
    parts |= {"geom_size": model.geom_size}
    return {name: np.asarray(part) for name, part in parts.items() if isinstance(part, np.ndarray | int | float)}


@pytest.mark.parametrize("name", ["ant", "humanoid", "pusher"])
def test_a_body_is_brax_s_own_to_the_bit(name: str):
    file = Path(brax.__file__).parent / "envs" / "assets" / f"{name}.xml"
    theirs = mujoco.MjModel.from_xml_string(mjcf.fuse_bodies(file.read_text()))
    ours = getattr(models, name)().compile()
    wanted, got = fields(theirs), fields(ours)
    assert len(wanted) > 200 and {"body_inertia", "dof_damping", "geom_pos", "opt.timestep"} <= wanted.keys()
    assert [key for key in wanted if wanted[key].tobytes() != got[key].tobytes()] == []


def numbers(model: mujoco.MjModel) -> dict[str, float]:
    every = map(model.numeric, range(model.nnumeric))
    return {number.name: float(number.data[0]) for number in every}


@pytest.mark.parametrize("name", ["ant", "humanoid", "pusher"])
def test_the_numbers_that_an_engine_reads_besides_are_brax_s(name: str):
    """Springs for the ant and the humanoid, and the halvings of the pusher's solver; the rest are defaults."""
    file = Path(brax.__file__).parent / "envs" / "assets" / f"{name}.xml"
    theirs, ours = numbers(mujoco.MjModel.from_xml_path(str(file))), numbers(getattr(models, name)().compile())
    assert len(ours) == {"ant": 6, "humanoid": 6, "pusher": 1}[name]
    defaults = {} if name == "pusher" else {"spring_mass_scale": 0.0, "ang_damping": 0.0, "vel_damping": 0.0}
    assert {key: value for key, value in (defaults | theirs).items() if key in defaults | ours} == defaults | ours

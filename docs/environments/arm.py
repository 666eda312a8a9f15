"""The picture of docs/so101.md: a start of each of the arm's tasks, with its goal, drawn by MuJoCo.

python docs/environments/arm.py
"""

from pathlib import Path

import jax
import numpy as np
from PIL import Image

from dcp import make_env
from dcp.lab.render.pictures import make_picture
from dcp.robots.so101_tasks import TASKS

SIZE = (400, 300)
KEY = 7  # its poses show the arm from the side


def main() -> None:
    shots = []
    for name in TASKS:
        env = make_env(name)
        picture = make_picture(env, *SIZE)
        shots.append(picture(env.reset(jax.random.key(KEY))))
        picture.close()
    rows = [np.concatenate(shots[i : i + 2], axis=1) for i in (0, 2)]
    sheet = Image.fromarray(np.concatenate(rows, axis=0))
    sheet.save(Path(__file__).with_name("so101.png"), optimize=True)


if __name__ == "__main__":
    main()

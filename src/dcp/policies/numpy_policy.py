"""Run a policy of `dcp export --format numpy` with only NumPy. Copy this one file to a robot; it does not need dcp.

    policy = NumpyPolicy.load("policy.npz")
    action = policy(observation, goal)  # [S], [G] -> [A], or many at once

A step for one observation allocates almost nothing: every layer writes into its own memory, and psi_g(goal) is kept
while the goal stays the same. So use one policy in only one thread.
Written for Python 3.9 and NumPy 1.20 or newer: robots often have older versions than dcp needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

FORMAT, SCHEMA_VERSION = "dcp.exported_policy", 2  # 2 has action chunks
METADATA = "dcp"  # the entry of the file that holds the metadata, as JSON
ROWS = 1024  # computed at once; more would only take more memory

Calls = list[Callable[[], Any]]  # made in order, each in place


def numbers(name: str, value: Any, mistake: type[ValueError] = ValueError) -> np.ndarray:
    try:
        return np.asarray(value, np.float32)
    except (ValueError, TypeError) as error:
        raise mistake(f"this policy's {name} must be numbers ({error})") from None


def paired(
    state: np.ndarray, goal: np.ndarray, sizes: tuple[int, int], mistake: type[ValueError] = ValueError
) -> tuple[np.ndarray, np.ndarray]:
    """Broadcast to [..., S] and [..., G], so that one goal may serve many states, and one state many goals."""
    for name, value, size in (("observation", state, sizes[0]), ("goal", goal, sizes[1])):
        if value.ndim == 0 or value.shape[-1] != size:
            raise mistake(f"this policy's {name} has {size} numbers, not shape {value.shape}")
    try:
        rows = np.broadcast_shapes(state.shape[:-1], goal.shape[:-1])
    except ValueError:
        shapes = f"{state.shape} and {goal.shape}"
        raise mistake(f"observations and goals of shapes {shapes} do not pair: give as many") from None
    return np.broadcast_to(state, (*rows, sizes[0])), np.broadcast_to(goal, (*rows, sizes[1]))


def _whole(values: dict[str, Any], name: str, least: int = 1) -> int:
    """Return a whole number of the metadata, or refuse what is none: text, true, a number of 900 digits."""
    value, most = values[name], 1_000_000
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is not a whole number from {least} to {most}")
    return value


class ExportedPolicy:
    """Share what all exported forms have: sizes, inputs of one row or many, action chunks. A form adds `infer`."""

    mistake: ClassVar[type[ValueError]] = ValueError  # raised with one sentence for a wrong input or file

    def __init__(self, metadata: dict[str, Any]) -> None:
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise ValueError("not a policy that `dcp export` wrote")
        if _whole(metadata, "schema_version") > SCHEMA_VERSION:
            raise ValueError(f"schema {metadata['schema_version']}, this reader knows {SCHEMA_VERSION}")
        self.metadata = metadata
        self.state_size, self.goal_size, self.action_size = (
            _whole(metadata, f"{name}_size") for name in ("state", "goal", "action")
        )
        self.action_chunk = _whole({"action_chunk": 1, **metadata}, "action_chunk")
        self._planned, self._turn = np.empty(0, np.float32), 0  # the current chunk, and the next action's index
        self._single = (self.state_size,), (self.goal_size,)
        dims = metadata["goal_dims"] if isinstance(metadata["goal_dims"], list) else []
        self.goal_dims: tuple[int, ...] = tuple(_whole({"goal_dims": dim}, "goal_dims", 0) for dim in dims)
        if len(self.goal_dims) != self.goal_size or not all(0 <= dim < self.state_size for dim in self.goal_dims):
            raise ValueError(f"goal_dims {self.goal_dims} do not fit the sizes")
        if not isinstance(metadata["about"], dict):
            raise ValueError("about is not an object")
        self.about: dict[str, Any] = metadata["about"]
        if metadata.get("burst"):
            raise ValueError("it has a burst inside, which this reader does not know")

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Act: [S], [G] -> [A] or [B, S], [B, G] -> [B, A]. With chunks, all H actions."""
        raise NotImplementedError

    def reset(self) -> None:
        """Start an episode with a new chunk."""
        self._turn = 0

    def __call__(self, observation: Any, goal: Any) -> np.ndarray:
        """Take one step: state [..., S], goal [..., G] -> action [..., A]. One goal may serve many states."""
        state, goal = numbers("observation", observation, self.mistake), numbers("goal", goal, self.mistake)
        if (state.shape, goal.shape) != self._single:
            return self._many(state, goal)
        return self.infer(state, goal) if self.action_chunk == 1 else self._next_chunk_action(state, goal)

    def _next_chunk_action(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Return the next action of the chunk; plan a new chunk after all H, or if the number of rows changes."""
        if self._turn == 0 or self._planned.shape[:-1] != state.shape[:-1]:
            self._planned, self._turn = self.infer(state, goal), 0
        first = self._turn * self.action_size
        self._turn = (self._turn + 1) % self.action_chunk
        return self._planned[..., first : first + self.action_size]

    def _many(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        state, goal = paired(state, goal, (self.state_size, self.goal_size), self.mistake)
        rows = state.shape[:-1]
        if 0 in rows:
            return np.zeros((*rows, self.action_size), np.float32)
        state, goal = state.reshape(-1, self.state_size), goal.reshape(-1, self.goal_size)
        planned = self.infer(state, goal) if self.action_chunk == 1 else self._next_chunk_action(state, goal)
        return planned.reshape(*rows, self.action_size)


class Layer(NamedTuple):
    """Hold Dense, LayerNorm, activation, residual connection; the kernel includes all that can be precomputed."""

    kernel: np.ndarray  # [in + 1, out]: the bias is the last row
    scale: np.ndarray | None  # [out], of LayerNorm
    shift: np.ndarray | None  # [out]
    activation: str | None
    residual: bool  # adds the output of the last residual layer, or of the first layer


def _swish(h: np.ndarray, scratch: np.ndarray) -> Calls:
    """Compute x sigmoid(x) = y + y tanh(y) at y = x / 2; the half is in the kernel. tanh does not overflow."""
    return [partial(np.tanh, h, scratch), partial(np.multiply, scratch, h, scratch), partial(np.add, h, scratch, h)]


def _relu(h: np.ndarray, scratch: np.ndarray) -> Calls:
    return [partial(np.maximum, h, np.float32(0.0), h)]


class Activation(NamedTuple):
    factor: float  # on its input
    in_place: Callable[[np.ndarray, np.ndarray], Calls]


ACTIVATIONS = {"swish": Activation(0.5, _swish), "relu": Activation(1.0, _relu)}


def _layer(arrays: dict[str, np.ndarray], name: str, about: dict[str, Any], in_size: int) -> Layer:
    kernel, bias = arrays[f"{name}/kernel"].astype(np.float64), arrays[f"{name}/bias"].astype(np.float64)
    if kernel.ndim != 2 or kernel.shape[0] != in_size or bias.shape != kernel.shape[1:]:
        raise ValueError(f"{name} has shapes {kernel.shape} and {bias.shape}, and {in_size} numbers to read")
    activation = about["activation"]
    if activation not in (None, *ACTIVATIONS):
        raise ValueError(f"activation {activation!r} is not known")
    factor = ACTIVATIONS[activation].factor if activation else 1.0
    kernel, scale, shift = np.vstack([kernel, bias]), None, None
    if about["norm"]:
        kernel -= kernel.mean(axis=1, keepdims=True)  # makes the outputs' mean zero, as LayerNorm does
        scale, shift = (np.float32(factor) * arrays[f"{name}/{part}"] for part in ("scale", "shift"))
        if not scale.shape == shift.shape == bias.shape:
            raise ValueError(f"{name}'s LayerNorm does not fit")
    else:
        kernel *= factor
    return Layer(_aligned(kernel), scale, shift, activation, bool(about["residual"]))


def _require_finite(arrays: dict[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise ValueError(f"the weights {name!r} are not all finite")


def _aligned(kernel: np.ndarray) -> np.ndarray:
    """Return the kernel in float32, aligned to a cache line, which makes products a tenth faster."""
    memory = np.empty(4 * kernel.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    aligned = memory[start : start + 4 * kernel.size].view(np.float32).reshape(kernel.shape)
    aligned[...] = kernel
    return aligned


def _layers(arrays: dict[str, np.ndarray], name: str, about: list[dict[str, Any]], size: int) -> list[Layer]:
    layers: list[Layer] = []
    for number, part in enumerate(about):
        layers.append(_layer(arrays, f"{name}/{number}", part, size))
        size = layers[-1].kernel.shape[1]
    return layers


def _squares(x: np.ndarray) -> np.ndarray:
    """Return the sums of squares: [B, D] -> [B, 1]."""
    return np.einsum("bd,bd->b", x, x)[:, None]


def _normalise(h: np.ndarray, scale: np.ndarray, shift: np.ndarray, epsilon: float) -> None:
    """Apply LayerNorm to a centred h, in place."""
    size = h.shape[-1]
    np.divide(h, math.sqrt(h.dot(h) / size + epsilon) if h.ndim == 1 else np.sqrt(_squares(h) / size + epsilon), h)
    np.multiply(h, scale, h)
    np.add(h, shift, h)


def _buffer(size: int, rows: int | None) -> np.ndarray:
    """Return a buffer with one more number than asked for, a 1, which multiplies the bias."""
    return np.ones((size + 1,) if rows is None else (rows, size + 1), np.float32)


class Network:
    """Run an MLP in its own memory, for one input (rows None) or a batch: write `input`, run, read `output`."""

    def __init__(self, layers: list[Layer], epsilon: float, rows: int | None) -> None:
        self._calls: Calls = []
        x = _buffer(layers[0].kernel.shape[0] - 1, rows)
        self.input = skip = x[..., :-1]
        for number, layer in enumerate(layers):
            y = _buffer(layer.kernel.shape[1], rows)
            h = y[..., :-1]
            self._calls.append(partial(x.dot if rows is None else partial(np.matmul, x), layer.kernel, h))
            if layer.scale is not None and layer.shift is not None:
                self._calls.append(partial(_normalise, h, layer.scale, layer.shift, epsilon))
            if layer.activation:
                self._calls += ACTIVATIONS[layer.activation].in_place(h, np.empty_like(h))
            if layer.residual:
                self._calls.append(partial(np.add, h, skip, h))
            if layer.residual or number == 0:
                skip = h
            x = y
        self.output = x[..., :-1]

    def run(self) -> None:
        for call in self._calls:
            call()


class RawGoal:
    """Give the actor the goal's coordinates."""

    networks = ("actor",)

    def __init__(self, networks: dict[str, Network], state_size: int) -> None:
        self._goal = networks["actor"].input[..., state_size:]

    def write(self, achieved: np.ndarray, goal: np.ndarray) -> None:
        self._goal[...] = goal


class Direction:
    """Give the actor direction and distance from psi_g(achieved) to psi_g(goal), zero if the two are equal."""

    networks = ("psi_g", "actor")

    def __init__(self, networks: dict[str, Network], state_size: int) -> None:
        self._psi = networks["psi_g"]
        size, condition = self._psi.output.shape[-1], networks["actor"].input[..., state_size:]
        self._direction, self._magnitude = condition[..., :size], condition[..., size : size + 1]
        self._goal = condition[..., size + 1 :]
        self._psi_goal, self._kept = np.empty_like(self._psi.output), b""

    def write(self, achieved: np.ndarray, goal: np.ndarray) -> None:
        content = goal.tobytes()
        if content != self._kept:
            self._psi_goal[...], self._kept = self._encode(goal), content
        direction, magnitude = self._direction, self._magnitude
        np.subtract(self._psi_goal, self._encode(achieved), direction)
        if direction.ndim == 1:
            length = math.sqrt(direction.dot(direction))
            magnitude[0] = length
            if length > 0.0:
                np.divide(direction, magnitude, direction)
        else:
            np.sqrt(_squares(direction), magnitude)
            np.divide(direction, np.where(magnitude > 0.0, magnitude, np.float32(1.0)), direction)

    def _encode(self, goal: np.ndarray) -> np.ndarray:
        self._psi.input[...] = goal
        self._psi.run()
        return self._psi.output


class DirectionAndGoal(Direction):
    """Give the actor direction, distance and the goal's coordinates."""

    def write(self, achieved: np.ndarray, goal: np.ndarray) -> None:
        super().write(achieved, goal)
        self._goal[...] = goal


# The conditions of dcp.methods.conditions that need no derivative of psi_g.
CONDITIONS = {"raw_goal": RawGoal, "direction": Direction, "direction_and_goal": DirectionAndGoal}


class Program(NamedTuple):
    """Hold memory and calls for one step, or for a batch of a given number of rows."""

    state: np.ndarray  # [..., S]: the actor's input begins with it
    condition: RawGoal | Direction  # writes the rest of the actor's input
    actor: Network


class NumpyPolicy(ExportedPolicy):
    def __init__(self, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super().__init__(metadata)
        if metadata["condition"] not in CONDITIONS:
            raise ValueError(f"condition {metadata['condition']!r} is not known")
        self._condition, self._epsilon = CONDITIONS[metadata["condition"]], float(metadata["norm_epsilon"])
        self._layers: dict[str, list[Layer]] = {}
        condition_size = self.goal_size
        for name in self._condition.networks:
            size = self.state_size + condition_size if name == "actor" else self.goal_size
            self._layers[name] = _layers(arrays, name, metadata["networks"][name], size)
            condition_size = self._layers[name][-1].kernel.shape[1] + 1
            condition_size += self.goal_size if metadata["condition"] == "direction_and_goal" else 0
        if self._layers["actor"][-1].kernel.shape[1] != self.action_chunk * self.action_size:
            raise ValueError("the actor's output is not an action")
        low, high = self.goal_dims[0], self.goal_dims[-1] + 1
        neighbours = self.goal_dims == tuple(range(low, high))
        self._achieved = (..., slice(low, high)) if neighbours else (..., list(self.goal_dims))
        self._one, self._batch = self._program(None), (1, self._program(1))

    @classmethod
    def load(cls, path: str | Path) -> NumpyPolicy:
        """Load a policy. The file holds only arrays and JSON, so it cannot run code."""
        names: list[str] = []
        try:
            with np.load(path, allow_pickle=False) as file:
                names = file.files
                # np.savez does not compress, so a file whose arrays are larger than itself is not ours
                if sum(entry.file_size for entry in file.zip.infolist()) > Path(path).stat().st_size:
                    raise ValueError("its arrays are larger than the file")
                arrays = {name: file[name] for name in file.files}
                _require_finite(arrays)
                return cls(json.loads(str(arrays[METADATA])), arrays)
        except FileNotFoundError:
            raise cls.mistake(f"there is no file {path}: name one that `dcp export` wrote") from None
        except Exception as error:  # errors of zipfile, NumPy and JSON share no class
            reason = (
                f" ({str(error)[:200]})" if type(error) is ValueError and METADATA in names else ""
            )  # NumPy's message does not help
            sentence = f"{path} is not a whole policy of `dcp export`{reason}: export or copy it again"
            raise cls.mistake(sentence) from error

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if state.ndim == 2 and len(state) > ROWS:
            starts = range(0, len(state), ROWS)
            return np.concatenate([self.infer(state[i : i + ROWS], goal[i : i + ROWS]) for i in starts])
        program = self._one if state.ndim == 1 else self._for_rows(len(state))
        program.state[...] = state
        program.condition.write(state[self._achieved], goal)
        program.actor.run()
        return np.tanh(program.actor.output)

    def _for_rows(self, rows: int) -> Program:
        if self._batch[0] != rows:
            self._batch = rows, self._program(rows)
        return self._batch[1]

    def _program(self, rows: int | None) -> Program:
        networks = {name: Network(layers, self._epsilon, rows) for name, layers in self._layers.items()}
        actor = networks["actor"]
        return Program(actor.input[..., : self.state_size], self._condition(networks, self.state_size), actor)

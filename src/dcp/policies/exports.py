"""Export policies to files that run without dcp: `export_policy` writes NumPy, ONNX, StableHLO; `load_exported` reads.

StableHLO works for any policy that JAX can trace, ONNX (onnx_form.py) and NumPy for dcp's own parts.
Only StableHLO files need JAX to be read.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dcp import __version__
from dcp.errors import RunError, UserError, install_hint
from dcp.files.validation import About, checked, open_regular, parse_json
from dcp.policies import numpy_policy
from dcp.policies.numpy_policy import FORMAT, METADATA, SCHEMA_VERSION, ExportedPolicy, NumpyPolicy

if TYPE_CHECKING:
    from dcp.policies.policy import DeployedPolicy

ENDINGS = {"onnx": ".onnx", "stablehlo": ".stablehlo", "numpy": ".npz"}  # format -> suffix
STABLEHLO_METADATA, STABLEHLO_ARTEFACT = "dcp.json", "policy.jax_export"  # the entries of the zip file
PLATFORMS = ("cpu", "cuda", "tpu")
DATE = (1980, 1, 1, 0, 0, 0)  # of the zip file's entries, so that the same policy gives the same file
TOLERANCE = 1e-4  # mean difference of actions in [-1, 1]: far above rounding, far below a missing layer
MOST_ONNX_BYTES = 2**30  # protobuf reads a file whole before anything of it can be checked
CHECKED = 64  # inputs on which a file is compared


# ---- reading


def is_exported(path: str | Path) -> bool:
    """Return whether a file's suffix is one of `dcp export`: not a run folder, not a policy file of `dcp train`."""
    return Path(path).suffix in ENDINGS.values() and not Path(path).is_dir()


def format_of(path: str | Path) -> str:
    """Return the format of a file's suffix."""
    suffix = Path(path).suffix
    form = next((form for form, ending in ENDINGS.items() if ending == suffix), None)
    if form is None:
        endings = ", ".join(f"{ending} ({form})" for form, ending in ENDINGS.items())
        raise UserError(f"{path} does not say its format: end its name in one of {endings}")
    return form


def load_exported(path: str | Path) -> ExportedPolicy:
    """Return the file as a callable: policy(observation, goal) -> action, NumPy in and out."""
    path = Path(path)
    if not is_exported(path):
        raise UserError(f"{path} is not an exported policy: name a file that ends in {', '.join(ENDINGS.values())}")
    if not path.is_file():
        raise UserError(f"there is no file {path}: write one with `dcp export`")
    try:
        policy = _read(path)
        checked(policy.about, About)  # numpy_policy.py cannot do it, because a robot has only NumPy
        # One step checks that the sizes match the metadata, and compiles what compiles at the first call.
        action = policy.infer(np.zeros(policy.state_size, np.float32), np.zeros(policy.goal_size, np.float32))
        shape = (policy.action_chunk * policy.action_size,)
        if action.shape != shape:
            raise ValueError(f"its action has shape {action.shape}, not {shape}")
        return policy
    except UserError:
        raise
    except Exception as error:  # errors of protobuf, onnxruntime, zipfile and XLA share no class
        raise UserError(
            f"{path} is not a whole policy of `dcp export` ({_short(error)}): export or copy it again"
        ) from error


def _read(path: Path) -> ExportedPolicy:
    if path.suffix == ENDINGS["numpy"]:
        return NumpyForm.load(path)
    if path.suffix == ENDINGS["onnx"]:
        form = _onnx_form().OnnxForm
        with open_regular(path, most=MOST_ONNX_BYTES) as file:
            return form(file.read())
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:  # our files are not compressed
            raise ValueError("its entries are larger than the file")
        metadata = parse_json(archive.read(STABLEHLO_METADATA).decode("utf-8"))
        return StableHloForm(metadata, archive.read(STABLEHLO_ARTEFACT))


class NumpyForm(NumpyPolicy):
    mistake = UserError


class StableHloForm(ExportedPolicy):
    """Run jax.export's artefact; it compiles at the first call with each batch size."""

    mistake = UserError

    def __init__(self, metadata: dict[str, Any], artefact: bytes) -> None:
        super().__init__(metadata)
        import jax
        from jax import export

        exported = export.deserialize(bytearray(artefact))
        _require_stable_calls(exported.mlir_module())
        self._call = jax.jit(exported.call)

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if state.ndim == 1:
            return self.infer(state[None], goal[None])[0]
        return np.asarray(self._call(state, goal))


def _require_stable_calls(program: str) -> None:
    """Refuse a program with calls other than those that JAX allows in exports: an untrusted one could call any memory
    address."""
    from jax._src.export import _export
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir  # pyright: ignore[reportPrivateImportUsage]

    allowed = {*_export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE, "shape_assertion"}
    called: set[str] = set()

    def note(operation: Any) -> Any:
        inner = operation.operation
        if "call_target_name" in inner.attributes:
            called.add(ir.StringAttr(inner.attributes["call_target_name"]).value)
        elif "custom_call" in inner.name:
            called.add(inner.name)
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context():
        ir.Module.parse(program).operation.walk(note)
    if unknown := sorted(called - allowed):
        raise ValueError(f"it calls {unknown[0][:100]!r}, which no export of dcp does")


def _onnx_form() -> Any:
    """Import the module that needs the optional package onnx."""
    try:
        from dcp.policies import onnx_form
    except ImportError as error:
        raise UserError(f"an ONNX file needs {error.name} here: {install_hint('onnx')}") from error
    return onnx_form


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


# ---- writing


def export_policy(path: str | Path, form: str, out: str | Path | None = None) -> Path:
    """Export the policy of a run folder or policy file to one file, by default next to it. -> its path"""
    from dcp.policies.policy_file import load_policy_and_about, write_whole

    if form not in ENDINGS:
        raise UserError(f"unknown format {form!r}: choose one of {', '.join(ENDINGS)}")
    (policy, about), ending = load_policy_and_about(path), ENDINGS[form]
    out = Path(out) if out is not None else _folder(Path(path)) / f"policy{ending}"
    if out.suffix != ending:
        raise UserError(f"{out} does not end in {ending}, by which its readers know the format {form}: rename it")
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file with --out")
    content = encode(policy, form, about)
    compare(policy, content, form)
    try:
        write_whole(out, content)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): name another --out") from error
    return out


def _folder(path: Path) -> Path:
    """Return the run's folder, or the current one for a zoo policy, so that nothing is written into the package."""
    if not path.exists():
        return Path()
    return path if path.is_dir() else path.parent


def encode(policy: "DeployedPolicy", form: str, about: Mapping[str, Any]) -> bytes:
    """Return the file's content. `about` says where the policy comes from."""
    metadata = _metadata(policy, about)
    if form == "numpy":
        return _numpy_bytes(policy, metadata)
    if form == "stablehlo":
        return _stablehlo_bytes(policy, metadata)
    return _onnx_form().onnx_bytes(policy, metadata)


def compare(policy: "DeployedPolicy", content: bytes, form: str) -> None:
    """Refuse a file whose actions differ, on small and large inputs, in a batch and one by one, and at the goal."""
    random, spec = np.random.default_rng(0), policy.spec
    scale = np.geomspace(0.1, 3.0, CHECKED)[:, None]
    state = (scale * random.standard_normal((CHECKED, spec.state_size))).astype(np.float32)
    goal = (scale * random.standard_normal((CHECKED, spec.goal_size))).astype(np.float32)
    goal[0] = spec.achieved(state[0])
    with TemporaryDirectory() as folder:
        draft = Path(folder) / f"policy{ENDINGS[form]}"
        draft.write_bytes(content)
        infer = load_exported(draft).infer
        alone = np.stack([infer(*pair) for pair in zip(state, goal, strict=True)])
        actions = np.stack([infer(state, goal), alone])
    apart = np.mean(np.abs(actions - policy.planned(state, goal)))
    if not apart <= TOLERANCE:
        raise RunError(
            f"the {form} file's actions differ from the policy's by {apart:.1g} on average: nothing was written; "
            "choose another --format, and please report it"
        )


def _metadata(policy: "DeployedPolicy", about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of every exported file."""
    s = policy.spec
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION if policy.action_chunk > 1 else 1,
        "dcp_version": __version__,
        "inputs": {"state": ["batch", s.state_size], "goal": ["batch", s.goal_size]},
        "outputs": {"action": ["batch", policy.action_chunk * s.action_size]},
        "state_size": s.state_size,
        "goal_size": s.goal_size,
        "action_size": s.action_size,
        "goal_dims": list(s.goal_dims),
        "condition": _condition_name(policy),
        "about": {"env": s.name, **({"control": s.control} if s.control != "joints" else {}), **about},
        **({"action_chunk": policy.action_chunk} if policy.action_chunk > 1 else {}),
    }


def _stablehlo_bytes(policy: "DeployedPolicy", metadata: dict[str, Any]) -> bytes:
    """Return a zip file of jax.export's artefact and the metadata. JAX traces the policy's own `act`."""
    try:
        artefact = _traced(policy).serialize()
    except ImportError as error:  # jax.export needs flatbuffers, which JAX does not require
        raise UserError(f"a StableHLO file cannot be written here ({error}): install dcp again") from error
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(STABLEHLO_METADATA, DATE), json.dumps(metadata))
        archive.writestr(zipfile.ZipInfo(STABLEHLO_ARTEFACT, DATE), artefact)
    return file.getvalue()


def _traced(policy: "DeployedPolicy") -> Any:
    """Export `act` for any batch size; row by row if a part needs to know the size."""
    import jax
    import jax.numpy as jnp
    from jax import export

    def action(state: Any, goal: Any) -> Any:
        return policy.plan(state, goal)

    (batch,) = export.symbolic_shape("batch")
    sizes = (policy.spec.state_size, policy.spec.goal_size)
    inputs = [jax.ShapeDtypeStruct((batch, size), jnp.float32) for size in sizes]
    try:
        return export.export(jax.jit(action), platforms=PLATFORMS)(*inputs)
    except Exception as first:  # a user's part may raise anything
        try:
            return export.export(jax.jit(jax.vmap(action)), platforms=PLATFORMS)(*inputs)
        except Exception:
            raise UserError(
                f"jax.export cannot trace this policy ({_short(first)}): keep host callbacks out of its parts"
            ) from first


# ---- dcp's own parts without Flax, for the NumPy form and our ONNX graph


class Layer(NamedTuple):
    """Hold a layer: Dense, then LayerNorm, then the activation, then the residual connection."""

    arrays: dict[str, np.ndarray]  # kernel [in, out], bias [out]; scale and shift [out] of LayerNorm, if it has one
    activation: str | None
    residual: bool  # adds the output of the last residual layer, or of the first layer


def foreign_part(policy: "DeployedPolicy") -> str | None:
    """Return the name of a part that the NumPy form and our ONNX graph do not support, or None."""
    from dcp.methods.conditions import RawGoal
    from dcp.methods.table import CRITICS
    from dcp.networks import MLP, NETWORKS
    from dcp.residual_network import Residual

    if _condition_name(policy) not in numpy_policy.CONDITIONS:
        return f"the condition {_condition_name(policy)}"
    network: Any = policy.network
    if type(network) not in (MLP, Residual):
        return f"the network {NETWORKS.name_of(type(network))}"
    if type(policy.condition) is not RawGoal and not _psi_g_is_a_network(policy.critic):
        return f"the critic {CRITICS.name_of(type(policy.critic))}"
    if (activation := network.activation) not in numpy_policy.ACTIVATIONS:
        return f"the activation {activation}"
    return None


def _psi_g_is_a_network(critic: Any) -> bool:
    """Return whether psi_g is just the network applied to the goal's coordinates, as our forms compute it."""
    from dcp.critics.contrastive import Contrastive
    from dcp.critics.pair import Pair
    from dcp.critics.quasimetric import TMD, Quasimetric
    from dcp.critics.survival import ChronoSRL

    critic = critic.embedding if type(critic) is Pair else critic
    return type(critic) in (Contrastive, Quasimetric, TMD) or (type(critic) is ChronoSRL and critic.goal_steps == 1)


def _condition_name(policy: "DeployedPolicy") -> str:
    from dcp.methods.table import CONDITIONS

    return CONDITIONS.name_of(type(policy.condition))


def own_networks(policy: "DeployedPolicy") -> dict[str, list[Layer]]:
    """Return the layers of psi_g and of the actor's mean, for states and goals in the task's own units.

    `compare` finds whatever is missing here.
    """
    size = policy.action_chunk * policy.spec.action_size
    *hidden, last = _layers(policy, policy.actor)
    kernel, bias = last.arrays["kernel"], last.arrays["bias"]
    mean = last._replace(arrays={"kernel": kernel[:, :size], "bias": bias[:size]})  # the other half is the log std
    params = policy.critic_params.get("embedding", policy.critic_params)  # of a pair of critics
    psi_g = _layers(policy, params["psi_g"]) if "psi_g" in params else []
    return _in_task_units(policy, psi_g, [*hidden, mean])


def _in_task_units(policy: "DeployedPolicy", psi_g: list[Layer], actor: list[Layer]) -> dict[str, list[Layer]]:
    """Return the networks with the policy's scale in their first layers: W (x - centre) / spread + b is linear in x."""
    if not policy.scale:
        return {"psi_g": psi_g, "actor": actor}
    centre, spread = np.asarray(policy.scale.centre, np.float64), np.asarray(policy.scale.spread, np.float64)
    dims, raw = list(policy.spec.goal_dims), _condition_name(policy) in ("raw_goal", "direction_and_goal")
    size = actor[0].arrays["kernel"].shape[0]
    of_actor = np.zeros(size), np.ones(size)  # a direction has no scale
    for whole, part in zip(of_actor, (centre, spread), strict=True):
        whole[: len(part)] = part
        if raw:
            whole[size - len(dims) :] = part[dims]
    scaled = {"psi_g": [_scaled(psi_g[0], centre[dims], spread[dims]), *psi_g[1:]] if psi_g else []}
    return scaled | {"actor": [_scaled(actor[0], *of_actor), *actor[1:]]}


def _scaled(layer: Layer, centre: np.ndarray, spread: np.ndarray) -> Layer:
    kernel = np.asarray(layer.arrays["kernel"], np.float64) / spread[:, None]
    bias = np.asarray(layer.arrays["bias"], np.float64) - centre @ kernel
    return layer._replace(arrays={**layer.arrays, "kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)})


def _layers(policy: "DeployedPolicy", params: Any) -> list[Layer]:
    from dcp.residual_network import Residual

    shape: Any = policy.network
    if isinstance(shape, Residual):
        layers = _residual_layers(shape, params)
    else:
        layers = [_hidden(shape, params, number) for number in range(shape.depth)]
    return [*layers, Layer(_arrays(params["out"]), None, False)]


def _residual_layers(shape: Any, params: Any) -> list[Layer]:
    """Return the first layer, then each block's layers; a block's last layer adds the block's input."""
    blocks, each = shape.shape
    layers = [Layer({name: np.asarray(array) for name, array in params["first"].items()}, shape.activation, False)]
    for block in range(blocks):
        for number in range(each):
            arrays = {name: np.asarray(array[block, number]) for name, array in params["blocks"].items()}
            layers.append(Layer(arrays, shape.activation, shape.is_deep and number + 1 == each))
    return layers


def _hidden(shape: Any, params: Any, number: int) -> Layer:
    arrays = _arrays(params[f"hidden_{number}"])
    if shape.layer_norm:
        norm = params[f"norm_{number}"]
        arrays |= {"scale": np.asarray(norm["scale"]), "shift": np.asarray(norm["bias"])}
    residual = number > 0 and shape.residual_every > 0 and number % shape.residual_every == 0
    return Layer(arrays, shape.activation, residual)


def _arrays(dense: Any) -> dict[str, np.ndarray]:
    return {"kernel": np.asarray(dense["kernel"]), "bias": np.asarray(dense["bias"])}


def norm_epsilon() -> float:
    import flax.linen as nn

    return float(nn.LayerNorm.epsilon)


def _numpy_bytes(policy: "DeployedPolicy", metadata: dict[str, Any]) -> bytes:
    """Return the .npz of numpy_policy.py: the layers' arrays, and one JSON string."""
    if foreign := foreign_part(policy):
        raise UserError(f"the NumPy form does not know {foreign}: choose --format stablehlo")
    needed = numpy_policy.CONDITIONS[metadata["condition"]].networks
    networks = {name: layers for name, layers in own_networks(policy).items() if name in needed}
    about = {
        name: [{"norm": "scale" in x.arrays, "activation": x.activation, "residual": x.residual} for x in layers]
        for name, layers in networks.items()
    }
    arrays = {METADATA: np.array(json.dumps({**metadata, "norm_epsilon": norm_epsilon(), "networks": about}))}
    for name, layers in networks.items():
        for number, layer in enumerate(layers):
            arrays |= {f"{name}/{number}/{part}": array for part, array in layer.arrays.items()}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()

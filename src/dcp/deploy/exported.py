"""Exported policies, whatever their form: `load_exported(path)(observation, goal) -> action`, NumPy in and out."""

import json
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dcp.deploy.numpy_policy import METADATA, ExportedPolicy, NumpyPolicy
from dcp.errors import UserError

ENDINGS = {"onnx": ".onnx", "stablehlo": ".stablehlo", "numpy": ".npz"}  # by format
PSI_GOAL = "psi_goal"  # the tensor of an ONNX file that depends on the goal alone
STABLEHLO_METADATA, STABLEHLO_ARTEFACT = "dcp.json", "policy.jax_export"  # the entries of the zip file


def is_exported(path: str | Path) -> bool:
    """By its ending: a policy of `dcp export`, not a run folder or a policy file of `dcp train`."""
    return Path(path).suffix in ENDINGS.values() and not Path(path).is_dir()


def load_exported(path: str | Path) -> ExportedPolicy:
    path = Path(path)
    if not is_exported(path):
        raise UserError(f"{path} is no exported policy: name a file that ends in {', '.join(ENDINGS.values())}")
    if not path.is_file():
        raise UserError(f"there is no file {path}: write one with `dcp export`")
    try:
        return _tried(_READERS[path.suffix](path))
    except UserError:
        raise
    except Exception as error:  # what protobuf, onnxruntime, zipfile and XLA raise has no kind in common
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} is no whole policy of `dcp export` ({reason}): export or copy it again") from error


def _tried(policy: ExportedPolicy) -> ExportedPolicy:
    """After one step: the sizes are those of the metadata, and what compiles at the first call has compiled."""
    action = policy.infer(np.zeros(policy.state_size, np.float32), np.zeros(policy.goal_size, np.float32))
    if action.shape != (policy.action_size,):
        raise ValueError(f"its action has shape {action.shape}, not {(policy.action_size,)}")
    return policy


class NumpyForm(NumpyPolicy):
    mistake = UserError


class OnnxForm(ExportedPolicy):
    """Two sessions, so that psi_g(goal) is computed once a goal: the file's graph, cut at `psi_goal`."""

    mistake = UserError

    def __init__(self, metadata: dict[str, Any], content: bytes) -> None:
        super().__init__(metadata)
        self._encoder: Any = None
        self._kept = b"", np.empty(0)  # a goal's bytes and its psi: replaced together, whatever threads there are
        if metadata["condition"] == "direction":
            self._encoder = _session(_part(content, ["goal"], [PSI_GOAL]))
            content = _part(content, ["state", PSI_GOAL], ["action"])
        self._step = _session(content)

    @classmethod
    def read(cls, path: Path) -> "OnnxForm":
        onnx = _package("onnx")
        content = path.read_bytes()
        stored = {prop.key: prop.value for prop in onnx.load_from_string(content).metadata_props}
        return cls(json.loads(stored[METADATA]), content)

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if state.ndim == 1:
            return self.infer(state[None], goal[None])[0]
        feeds = {"state": state, "goal": goal} if self._encoder is None else {"state": state, PSI_GOAL: self._psi(goal)}
        return self._step.run(["action"], feeds)[0]

    def _psi(self, goal: np.ndarray) -> np.ndarray:
        content, (kept, psi_goal) = goal.tobytes(), self._kept
        if content != kept:
            psi_goal = self._encoder.run([PSI_GOAL], {"goal": goal})[0]
            self._kept = content, psi_goal
        return psi_goal


class StableHloForm(ExportedPolicy):
    """jax.export's artefact; compiled at the first call with a batch size."""

    mistake = UserError

    def __init__(self, metadata: dict[str, Any], artefact: bytes) -> None:
        super().__init__(metadata)
        import jax
        from jax import export

        self._call = jax.jit(export.deserialize(bytearray(artefact)).call)

    @classmethod
    def read(cls, path: Path) -> "StableHloForm":
        with zipfile.ZipFile(path) as archive:
            return cls(json.loads(archive.read(STABLEHLO_METADATA)), archive.read(STABLEHLO_ARTEFACT))

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if state.ndim == 1:
            return self.infer(state[None], goal[None])[0]
        return np.asarray(self._call(state, goal))


_READERS = {".onnx": OnnxForm.read, ".stablehlo": StableHloForm.read, ".npz": NumpyForm.load}


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"an ONNX file needs {name} here: pip install 'dcp[onnx]'") from error


def _part(content: bytes, inputs: list[str], outputs: list[str]) -> bytes:
    onnx = _package("onnx")
    return onnx.utils.Extractor(onnx.load_from_string(content)).extract_model(inputs, outputs).SerializeToString()


def _session(content: bytes) -> Any:
    runtime = _package("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a step is too small to be shared out
    options.log_severity_level = 4  # what is wrong comes as an exception
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

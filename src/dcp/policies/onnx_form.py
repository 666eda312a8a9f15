"""Write and run a policy as an ONNX graph: state and goal in, action out, the condition computed inside.

It is written node by node, for dcp's own parts. What depends only on the goal ends in the tensor `psi_goal`, so that a
runtime can cut the graph there and keep psi_g(goal) between steps.
"""

import json
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import _get_all_tensors as get_all_tensors
from onnx.external_data_helper import uses_external_data

from dcp.errors import UserError, install_hint
from dcp.files.validation import parse_json
from dcp.policies.exports import Layer, foreign_part, norm_epsilon, own_networks
from dcp.policies.numpy_policy import METADATA, ExportedPolicy

if TYPE_CHECKING:
    from dcp.policies.policy import DeployedPolicy

OPSET, IR_VERSION = 17, 8  # LayerNormalization came with 17; every onnxruntime since 1.12 knows them
BATCH = "batch"
PSI_GOAL = "psi_goal"  # the tensor that depends only on the goal


class OnnxForm(ExportedPolicy):
    """Run an ONNX file in onnxruntime. With `psi_goal` it has two sessions, so that psi_g runs once per goal."""

    mistake = UserError

    def __init__(self, content: bytes) -> None:
        model = onnx.load_from_string(content)
        stored = {prop.key: prop.value for prop in model.metadata_props}
        super().__init__(parse_json(stored[METADATA]))
        _require_sound(model)
        self._encoder: Any = None
        self._goal = ["goal"] if self.metadata["condition"] == "direction_and_goal" else []  # read besides psi
        self._kept = b"", np.empty(0)  # a goal's bytes and its psi, replaced together for thread safety
        if any(PSI_GOAL in node.output for node in model.graph.node):
            self._encoder = _session(_part(model, ["goal"], [PSI_GOAL]))
            content = _part(model, ["state", *self._goal, PSI_GOAL], ["action"])
        self._step = _session(content)

    def infer(self, state: np.ndarray, goal: np.ndarray) -> np.ndarray:
        if state.ndim == 1:
            return self.infer(state[None], goal[None])[0]
        if self._encoder is None:
            return self._step.run(["action"], {"state": state, "goal": goal})[0]
        feeds = {"state": state, PSI_GOAL: self._psi(goal), **dict.fromkeys(self._goal, goal)}
        return self._step.run(["action"], feeds)[0]

    def _psi(self, goal: np.ndarray) -> np.ndarray:
        content, (kept, psi_goal) = goal.tobytes(), self._kept
        if content != kept:
            psi_goal = self._encoder.run([PSI_GOAL], {"goal": goal})[0]
            self._kept = content, psi_goal
        return psi_goal


def _require_sound(model: onnx.ModelProto) -> None:
    """Refuse weights that are not finite, and weights in other files, because an untrusted graph may name any file."""
    for tensor in get_all_tensors(model):
        if uses_external_data(tensor):
            raise ValueError(f"its weights {tensor.name[:100]!r} lie in another file")
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the weights {tensor.name[:100]!r} are not all finite")


def _part(model: onnx.ModelProto, inputs: list[str], outputs: list[str]) -> bytes:
    return onnx.utils.Extractor(model).extract_model(inputs, outputs).SerializeToString()


def _session(content: bytes) -> Any:
    try:
        runtime = import_module("onnxruntime")
    except ImportError as error:
        raise UserError(f"an ONNX file needs onnxruntime here: {install_hint('onnx')}") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a step is too small to split over threads
    options.log_severity_level = 4  # faults come as exceptions
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def onnx_bytes(policy: "DeployedPolicy", metadata: dict[str, Any]) -> bytes:
    if foreign := foreign_part(policy):
        raise UserError(f"our ONNX graph does not know {foreign}: choose --format stablehlo")
    model = _own_model(policy, metadata["condition"])
    helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


# The graph, node by node


class Graph:
    """Collect nodes in order. `add` returns the name of the node's output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        to = to or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [to], name=f"node_{to}", **attributes))
        return to

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def mlp(self, name: str, layers: list[Layer], x: str, to: str) -> str:
        skip = x
        for number, layer in enumerate(layers):
            x = self._layer(f"{name}/{number}", layer, x, to if layer is layers[-1] else "")
            if layer.residual:
                x = self.add("Add", x, skip)
            if layer.residual or number == 0:
                skip = x
        return x

    def _layer(self, name: str, layer: Layer, x: str, to: str) -> str:
        stored = {part: self.constant(f"{name}/{part}", array) for part, array in layer.arrays.items()}
        x = self.add("Gemm", x, stored["kernel"], stored["bias"], to=to)
        if "scale" in stored:
            norm = {"axis": -1, "epsilon": norm_epsilon()}
            x = self.add("LayerNormalization", x, stored["scale"], stored["shift"], **norm)
        return ACTIVATIONS[layer.activation](self, x) if layer.activation else x


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "swish": lambda graph, x: graph.add("Mul", x, graph.add("Sigmoid", x)),
    "relu": lambda graph, x: graph.add("Relu", x),
}


def _direction(graph: Graph, psi_g: list[Layer], goal_dims: tuple[int, ...]) -> list[str]:
    """Add Algorithm 1's Direction with the safe norm, which is zero if the achieved goal is the goal."""
    achieved = graph.add("Gather", "state", graph.constant("goal_dims", np.asarray(goal_dims, np.int64)), axis=1)
    psi_goal = graph.mlp("psi_g", psi_g, "goal", PSI_GOAL)
    difference = graph.add("Sub", psi_goal, graph.mlp("psi_g", psi_g, achieved, "psi_state"))
    magnitude = graph.add("ReduceL2", difference, to="magnitude", axes=[1], keepdims=1)
    apart = graph.add("Greater", magnitude, graph.constant("zero", np.zeros((), np.float32)))
    divisor = graph.add("Where", apart, magnitude, graph.constant("one", np.ones((), np.float32)))
    return [graph.add("Div", difference, divisor, to="direction"), magnitude]


# A condition's name -> what the actor reads besides the state.
CONDITIONS: dict[str, Callable[[Graph, list[Layer], tuple[int, ...]], list[str]]] = {
    "raw_goal": lambda graph, psi_g, goal_dims: ["goal"],
    "direction": _direction,
    "direction_and_goal": lambda graph, psi_g, goal_dims: [*_direction(graph, psi_g, goal_dims), "goal"],
}


def _own_model(policy: "DeployedPolicy", condition: str) -> onnx.ModelProto:
    graph, networks, spec = Graph(), own_networks(policy), policy.spec
    condition_inputs = CONDITIONS[condition](graph, networks["psi_g"], spec.goal_dims)
    mean = graph.mlp("actor", networks["actor"], graph.add("Concat", "state", *condition_inputs, axis=1), "mean")
    graph.add("Tanh", mean, to="action")
    inner = [_floats(PSI_GOAL, policy.critic.repr_dim)] if condition != "raw_goal" else []
    whole = helper.make_graph(
        graph.nodes,
        "dcp_policy",
        [_floats("state", spec.state_size), _floats("goal", spec.goal_size)],
        [_floats("action", policy.action_chunk * spec.action_size)],
        list(graph.constants.values()),
        value_info=inner,
    )
    return helper.make_model(
        whole, producer_name="dcp", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )


def _floats(name: str, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, size])

"""The policy as an ONNX graph: state and goal in, action out, the direction computed inside.

Everything that depends on the goal alone ends in the tensor `psi_goal`, so that a runtime may split the graph there
and keep psi_g(goal) between steps.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dcp.deploy.export.layers import NORM_EPSILON, Layer, network_layers
from dcp.deploy.exported import PSI_GOAL
from dcp.deploy.numpy_policy import METADATA
from dcp.errors import UserError
from dcp.policies.policy import DeployedPolicy

OPSET, IR_VERSION = 17, 8  # LayerNormalization came with 17; every onnxruntime since 1.12 knows them
BATCH = "batch"


class Graph:
    """Nodes in order. `add` returns the name of the node's output."""

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
        kernel, bias = self.constant(f"{name}/kernel", layer.kernel), self.constant(f"{name}/bias", layer.bias)
        x = self.add("Gemm", x, kernel, bias, to=to)
        if layer.norm is not None:
            scale, shift = self.constant(f"{name}/scale", layer.norm[0]), self.constant(f"{name}/shift", layer.norm[1])
            x = self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=NORM_EPSILON)
        return ACTIVATIONS[layer.activation](self, x) if layer.activation else x


def _swish(graph: Graph, x: str) -> str:
    return graph.add("Mul", x, graph.add("Sigmoid", x))


def _relu(graph: Graph, x: str) -> str:
    return graph.add("Relu", x)


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {"swish": _swish, "relu": _relu}


def _raw_goal(graph: Graph, networks: dict[str, list[Layer]], goal_dims: tuple[int, ...]) -> list[str]:
    return ["goal"]


def _direction(graph: Graph, networks: dict[str, list[Layer]], goal_dims: tuple[int, ...]) -> list[str]:
    """Algorithm 1, Direction, with the safe norm: zero where the achieved goal is the goal."""
    achieved = graph.add("Gather", "state", graph.constant("goal_dims", np.asarray(goal_dims, np.int64)), axis=1)
    psi_goal = graph.mlp("psi_g", networks["psi_g"], "goal", PSI_GOAL)
    difference = graph.add("Sub", psi_goal, graph.mlp("psi_g", networks["psi_g"], achieved, "psi_state"))
    magnitude = graph.add("ReduceL2", difference, to="magnitude", axes=[1], keepdims=1)
    apart = graph.add("Greater", magnitude, graph.constant("zero", np.zeros((), np.float32)))
    divisor = graph.add("Where", apart, magnitude, graph.constant("one", np.ones((), np.float32)))
    return [graph.add("Div", difference, divisor, to="direction"), magnitude]


CONDITIONS = {"raw_goal": _raw_goal, "direction": _direction}


def onnx_bytes(policy: DeployedPolicy, metadata: dict[str, Any]) -> bytes:
    condition, activation, spec = policy.condition.name, policy.networks.shape.activation, policy.spec
    for kind, name, table in (("condition", condition, CONDITIONS), ("activation", activation, ACTIVATIONS)):
        if name not in table:
            raise UserError(f"the ONNX form does not know the {kind} {name!r}: choose --format stablehlo")
    graph, networks = Graph(), network_layers(policy)
    seen = CONDITIONS[condition](graph, networks, spec.goal_dims)
    mean = graph.mlp("actor", networks["actor"], graph.add("Concat", "state", *seen, axis=1), "mean")
    graph.add("Tanh", mean, to="action")
    inner = [_floats(PSI_GOAL, policy.networks.shape.repr_dim)] if condition == "direction" else []
    made = helper.make_graph(
        graph.nodes,
        "dcp_policy",
        [_floats("state", spec.state_size), _floats("goal", spec.goal_size)],
        [_floats("action", spec.action_size)],
        list(graph.constants.values()),
        value_info=inner,
    )
    model = helper.make_model(
        made, producer_name="dcp", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(model, {METADATA: json.dumps(metadata)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _floats(name: str, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, size])

"""A part becomes names and plain settings, and comes back as it was."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest

import dcp
from dcp.components import REQUIRED_FUNCTIONS, TABLES, build, describe, fits, require_part, settings_of
from dcp.critics.contrastive import ENERGIES, Contrastive
from dcp.errors import UserError
from dcp.methods.commands import PooledSubgoal
from dcp.methods.scores import SCORES, on_path
from tests.support.tiny import tiny_config


def half(x: float) -> float:
    return x / 2


@dataclass(frozen=True)
class Own:
    """A user's part whose fields have every kind of type that can be stored."""

    sizes: Sequence[int] = (1, 2)
    more: list[int] = (3,)  # pyright: ignore[reportAssignmentType]
    bare: tuple = ()
    nested: Sequence[Sequence[int]] | None = None
    mode: Literal["a", "b"] = "a"
    fn: Callable = half
    maybe: Optional[Callable[[float], float]] = None  # noqa: UP045
    either: str | Callable[..., Any] = "half"
    activation: Callable = TABLES["activation"]["relu"]

    def size(self, spec: Any, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation: Any, achieved: Any, commanded: Any) -> Any:
        return commanded


@dataclass
class Thawed:
    def size(self, spec: Any, repr_dim: int) -> int:
        return spec.goal_size

    def __call__(self, representation: Any, achieved: Any, commanded: Any) -> Any:
        return commanded


@dataclass(frozen=True)
class Sizeless:
    def __call__(self, representation: Any, achieved: Any, commanded: Any) -> Any:
        return commanded


@pytest.mark.parametrize(
    ("kind", "part", "words"),
    [
        ("condition", Thawed, "is not frozen: write @dataclass"),
        ("condition", Sizeless, "has no size: a condition has size, __call__"),
        ("condition", Contrastive, "has no size and no __call__: it is a critic"),
        ("critic", Own, "has no init and no loss and no after and no representation: it is a condition"),
        ("condition", half, "is not a dataclass"),
    ],
)
def test_a_part_that_cannot_be_of_its_kind_is_refused_in_one_sentence(kind: str, part: Any, words: str):
    with pytest.raises(UserError, match=re.escape(words)):
        build(kind, part, {})


def test_parts_that_are_composed_in_python_are_checked_too():
    agent = dcp.Agent(Contrastive(), PooledSubgoal(), Sizeless(), actor_goal="commanded")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="has no size"):
        dcp.Algorithm("point_u_maze", agent, tiny_config())


def test_every_part_of_ours_has_the_methods_of_its_kind():
    for kind in REQUIRED_FUNCTIONS:
        for row in TABLES[kind].values():
            require_part(kind, row, row.__name__)


@pytest.mark.parametrize("part", [Own(), Own(sizes=(), nested=((1,), (2, 3)), mode="b", maybe=half, bare=(1, "x"))])
def test_a_part_is_built_again_from_its_description(part: Own):
    assert build("condition", **describe("condition", part)) == part


def test_a_function_is_stored_by_name_and_text_stays_text_where_it_fits():
    stored = settings_of(Own())
    assert (stored["fn"], stored["either"], stored["activation"]) == ("tests.test_components:half", "half", "relu")
    assert build("condition", Own, {"either": "tests.test_components:half"}).either == "tests.test_components:half"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("half", "condition.fn is 'half': name a function as module:name"),
        ("tests.test_components:third", "cannot load the condition.fn 'tests.test_components:third'"),
        (3, "condition.fn must be Callable"),
    ],
)
def test_what_names_no_function_is_refused_in_one_sentence(value: Any, words: str):
    with pytest.raises(UserError, match=words):
        build("condition", Own, {"fn": value})


@pytest.mark.parametrize(
    ("value", "hint", "may"),
    [
        ([1], Sequence[int], True),
        ((1,), list[int], True),
        ("12", Sequence[str], False),
        (1, list[int], False),
        ([1], list, True),
        (None, Sequence[int] | None, True),
        ([1], Sequence[int] | tuple[str, ...], True),
        ("c", Literal["a", "b"], False),
    ],
)
def test_lists_stand_for_every_kind_of_sequence(value: Any, hint: Any, may: bool):
    assert fits(value, hint) is may


def test_a_tables_own_function_is_stored_under_its_name(monkeypatch: pytest.MonkeyPatch):
    """`dcp.methods.scores:on_path` would be code outside the package, which no file may name."""
    monkeypatch.setitem(SCORES, "mine", lambda *arrays: arrays[2].sum(-1))
    assert settings_of(PooledSubgoal(score=on_path))["score"] == "on_path"
    assert settings_of(PooledSubgoal(score=SCORES["mine"]))["score"] == "mine"
    assert settings_of(Contrastive(energy=ENERGIES["l2"]))["energy"] == "l2"  # pyright: ignore[reportArgumentType]
    assert PooledSubgoal(score=on_path) == PooledSubgoal(score="on_path")


def test_an_algorithm_with_a_tables_own_function_is_the_one_that_its_config_names():
    agent = dcp.Agent(dcp.Contrastive(), PooledSubgoal(pool_size=32, num_candidates=8, score=on_path), dcp.Direction())
    one = dcp.Algorithm("point_u_maze", agent, tiny_config())
    assert one.config.score == "on_path" and one.config.code == {}
    assert dcp.Algorithm(config=one.config) == one

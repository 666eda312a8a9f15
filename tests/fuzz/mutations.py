"""Hostile versions of a good file: a tree of JSON with wrong, huge or missing values in it, and bytes that changed."""

import copy
import json
import sys
from random import Random
from typing import Any

# A file may name code, and these modules are there to be imported: evil.py in the current folder, and two of Python's.
HOSTILE_MODULES = ("evil", "this", "antigravity")
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -5, 2, 57, 10**6, 10**9, 10**15, 2**31, 2**31 - 1, 2**32, 2**63, 2**64, 10**30,
    10**400,
    0.0, -0.0, 0.5, 1e-320, 1e300, -1e300, float("inf"), float("-inf"), float("nan"),
    "", "a", "0", "true", "dcp", "mlp", "crl", "raw_goal", "../../etc/passwd", "/etc/passwd", "os:system", "numpy:load",
    "builtins:exec", "dcp.types:MazeLayout", "jax:jit",
    "evil", "evil:", "evil:make", "evil:make:x", "evil:make x", "evil.sub:make", ":evil", " evil:make", "this:s",
    "antigravity:fly",
    "a" * 100_000, ".".join("a" * 20_000), "a:" + "b" * 5_000,
    "\x00", "\x1b[2J", "two\nlines", "\u2028", "\ud800", "<script>", "{}", "%s%n", "${HOME}",
    [], {}, [[]], [{}], {"": None}, [None] * 1_000, list(range(100)), {"name": "mlp", "settings": {}}, "DEEP",
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path to a value in a tree of JSON, the root first."""
    found = [path]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


def mutated_tree(tree: Any, random: Random) -> Any:
    """Change one to four places."""
    tree = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        tree = _mutated_once(tree, random)
    return tree


def _mutated_once(tree: Any, random: Random) -> Any:
    path = random.choice(places(tree))
    if not path:
        return _hostile(random) if random.random() < 0.05 else tree
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    key, kind = path[-1], random.random()
    if kind < 0.12:
        del parent[key]
    elif kind < 0.2 and isinstance(parent, dict):
        parent[random.choice(("", "a", "depth", "name", "__class__", key + "s", "\ud800", "x" * 500))] = parent.pop(key)
    elif kind < 0.3 and type(parent[key]) in (int, float):
        parent[key] = _plus(parent[key], random.choice((1, -1, 0.5, 1e9)))
    elif kind < 0.35 and isinstance(parent, list):
        large = len(json.dumps(parent[key])) > 1_000  # copies of copies would fill this process's own memory
        copies = 1 if large else random.choice((1, 3, 500))
        parent[key:key] = [copy.deepcopy(parent[key]) for _ in range(copies)]
    elif kind < 0.4:
        parent[key] = copy.deepcopy(parent[random.choice(list(parent) if isinstance(parent, dict) else [key])])
    else:
        parent[key] = _hostile(random)
    return tree


def _plus(number: float, more: float) -> float:
    return number if abs(number) > sys.float_info.max else number + more  # an int may be too large to become a float


def _hostile(random: Random) -> Any:
    value = random.choice(HOSTILE)
    return nested(random.choice((5, 30, 40, 400))) if value == "DEEP" else copy.deepcopy(value)


def as_text(tree: Any, random: Random) -> str:
    """As JSON; now and then with something that no dumps would write."""
    text = json.dumps(tree)
    kind = random.random()
    if kind < 0.02:
        return text[:1] + '"x": ' + "[" * 100_000 + text[1:]
    if kind < 0.04:
        return text.replace(": 1", ": " + "9" * random.choice((20, 400, 5_000)), 1)
    if kind < 0.06:
        return text.replace(": 1", ": 1e999", 1)
    return text


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Flip, cut, insert or repeat a few bytes."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at, kind = random.randrange(max(len(data), 1)), random.random()
        if not data:
            data += b"{"
        elif kind < 0.5:
            data[at] ^= 1 << random.randrange(8)
        elif kind < 0.65:
            data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5B, 0x7B))
        elif kind < 0.75:
            del data[at:]
        elif kind < 0.85:
            del data[at : at + random.choice((1, 2, 8, 64))]
        else:
            data[at:at] = random.choice((b"\x00" * 8, b"[" * 2_000, data[at : at + 32], b"\xff" * 4, b'"'))
    return bytes(data)

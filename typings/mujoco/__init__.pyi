"""MuJoCo fills its module from C at import, which a type checker cannot see."""

from typing import Any

def __getattr__(name: str) -> Any: ...

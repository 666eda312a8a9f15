"""Show episodes as pictures, videos and an interactive page. Loaded on demand, because MuJoCo and Pillow are heavy."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcp.lab.render.pictures import make_picture as make_picture

__all__ = ["make_picture"]


def __getattr__(name: str) -> Any:
    if name == "make_picture":
        from dcp.lab.render.pictures import make_picture

        return make_picture
    raise AttributeError(f"module 'dcp.lab.render' has no attribute {name!r}")

"""Python's garbage collector, kept from looking through everything in the middle of a step."""

import gc


class Garbage:
    """With JAX loaded a full collection takes a tenth of a second and more. What lives before the loop is left out."""

    def __init__(self):
        self._ours = False

    def leave(self) -> None:
        gc.collect()
        self._ours = gc.get_freeze_count() == 0  # else somebody froze before us, and it is not ours to undo
        gc.freeze()

    def resume(self) -> None:
        if self._ours:
            gc.unfreeze()
            self._ours = False

"""Record docs/images/explore.gif from big_maze.html, in a headless Chromium.

    python -m tools.docs.explore_recording

The page of two runs of 6 M steps (`--preset laptop --env point_big_maze --eval-env point_big_maze_eval --seed 0
--steps 6000000 --num-evals 12 --keep-policies`, methods dcp and crl; nothing is chosen by its result):

    dcp explore runs/point_big_maze/dcp/seed_0 runs/point_big_maze/crl/seed_0 --out docs/explore/big_maze.html
"""

import io
from collections.abc import Iterator
from itertools import pairwise

from PIL import Image

from tests.support.browser import Browser
from tools.docs.pages import DOCS, IMAGES

WIDTH, HEIGHT = 880, 494
FRAME = 80  # milliseconds
HAND = """(() => { const hand = document.createElement("div"); hand.id = "hand"; document.body.append(hand);
hand.style = "position:absolute;width:22px;height:22px;margin:-11px;border-radius:50%;border:2px solid #fff;" +
"z-index:9;background:rgb(29 32 36 / 0.45);box-shadow:0 0 0 1.5px rgb(29 32 36 / 0.8);display:none"; })()"""


def point_at(page: Browser, place: tuple[float, float] | None, panel: int = 0) -> None:
    """Show the pointer at a place of the plane, or hide it."""
    if place is None:
        page.run("document.getElementById('hand').style.display = 'none'")
        return
    page.run(
        f"(() => {{ const {{canvas, plan}} = dcpExplore.panels[{panel}], box = canvas.getBoundingClientRect(),"
        " ratio = canvas.width / box.width, hand = document.getElementById('hand').style; hand.display = 'block';"
        f"hand.left = `${{box.left + scrollX + plan.u({place[1]}) / ratio}}px`;"
        f"hand.top = `${{box.top + scrollY + plan.v({place[0]}) / ratio}}px`; }})()"
    )


def walk(page: Browser, steps: int, shove: str = "null") -> None:
    page.run(
        f"(() => {{ const app = dcpExplore; for (let i = 0; i < {steps}; i++) for (const panel of app.panels)"
        f" panel.walk.step(app.state.goal, false, panel === app.panels[0] ? {shove} : null);"
        "app.stale = true; app.advance(0); })()"
    )


def scenes(page: Browser) -> Iterator[None]:
    """Yield at each moment that becomes a frame."""
    for _ in range(26):  # the point walks
        walk(page, 3)
        yield
    path = [(6.0, 5.0), (5.9, 5.9), (4.9, 6.0), (4.0, 5.7), (3.9, 4.6), (3.0, 4.1), (2.2, 4.4), (1.9, 5.4), (1.2, 6.0)]
    for start, end in pairwise(path):  # the goal is dragged, and the field turns
        for i in range(1, 4):
            place = (start[0] + (end[0] - start[0]) * i / 3, start[1] + (end[1] - start[1]) * i / 3)
            page.run(f"dcpExplore.setGoal([{place[0]}, {place[1]}])")
            point_at(page, place)
            walk(page, 2)
            yield
    point_at(page, None)
    page.run("dcpExplore.restart()")
    for _ in range(30):
        walk(page, 3)
        yield
    moments = page.run("document.getElementById('version').max")
    page.run("dcpExplore.setGoal([6, 5]); dcpExplore.restart()")
    for version in range(int(moments) + 1):  # how the field formed
        page.run(
            f"(() => {{ const slider = document.getElementById('version'); slider.value = {version}; slider.oninput();"
            "while (dcpExplore.waiting) dcpExplore.advance(0); dcpExplore.stale = true; dcpExplore.advance(0); })()"
        )
        for _ in range(3):
            yield


def main() -> None:
    page, frames = Browser(WIDTH, HEIGHT), []
    page.resize(WIDTH, HEIGHT)
    page.open(DOCS / "explore" / "big_maze.html", "#step=0&goal=6,5")
    page.wait("!dcpExplore.waiting && !dcpExplore.stale")
    page.run(HAND)
    for part in (".tools", "#bar", "#dock", "#legend", "footer"):
        page.run(f"document.querySelector('{part}').style.display = 'none'")
    tints = page.run("[...dcpExplore.panels.map((p) => p.tint), dcpExplore.data.colours.goal]")
    marks = [channel for tint in tints for channel in bytes.fromhex(tint[1:])]
    page.run("window.requestAnimationFrame = () => 0")  # from here on, time passes when we say so
    for _ in scenes(page):
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        print(f"\r{len(frames)} frames", end="", flush=True)
    page.close()
    seen = Image.new("RGB", (WIDTH, 4 * HEIGHT))  # a palette of the whole story
    for i in range(4):
        seen.paste(frames[i * (len(frames) - 1) // 3], (0, i * HEIGHT))
    seen_most = seen.quantize(200, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette = Image.new("P", (1, 1))  # and the small marks' own colours, which would fall to their neighbours
    palette.putpalette([*(seen_most.getpalette() or []), *marks])
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    out = IMAGES / "explore.gif"
    drawn[0].save(out, save_all=True, append_images=drawn[1:], duration=FRAME, loop=0, optimize=True)
    print(f"\n{out}: {out.stat().st_size / 1e6:.2f} MB, {len(frames)} frames")


if __name__ == "__main__":
    main()

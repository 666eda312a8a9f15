// The mouse or a finger on a panel: the goal, the start, and the point itself, which is pushed while it walks.

const REACH = 26; // pixels around a handle

// What lies under the pointer: {kind: "goal" | "start" | "push", index}, or null.
function handleAt(panel, app, place, ratio) {
  const { state, task } = app, reach = Math.max((REACH * ratio) / panel.plan.unit, app.data.threshold);
  const near = (other) => Math.hypot(place[0] - other[0], place[1] - other[1]);
  const found = [{ kind: "goal", index: 0, far: near(state.goal) }];
  if (task) {
    const walking = panel.walk.steps > 0;
    state.places.forEach((start, index) => found.push({ kind: "start", index, far: near(start) + (walking ? 0.01 : 0) }));
    const acting = task.things.findIndex((one) => one.acts);
    if (walking) found.push({ kind: "push", index: acting, far: near(panel.walk.places()[acting]) - 0.01 });
  }
  found.sort((a, b) => a.far - b.far);
  return found[0].far <= reach ? found[0] : null;
}

export function connectDragging(panel, app) {
  const { canvas } = panel;
  let held = null;
  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    return { place: panel.plan.at((event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio), ratio };
  };
  const drag = (place) => {
    if (held.kind === "push") app.push = { panel, place };
    else if (held.kind === "goal") app.setGoal(place);
    else app.setStart(held.index, place);
  };
  const take = (event) => { const { place, ratio } = placeOf(event); return handleAt(panel, app, place, ratio); };
  canvas.addEventListener("pointerdown", (event) => {
    held = take(event);
    if (!held) return;
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("held");
    app.dragging = true;
    if (held.kind === "push") app.run(true);
    drag(placeOf(event).place);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) drag(placeOf(event).place);
    else canvas.style.cursor = take(event) ? "grab" : "default";
  });
  const release = () => {
    if (!held) return;
    held = null;
    canvas.classList.remove("held");
    Object.assign(app, { push: null, dragging: false, stale: true });
    app.remember();
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  // A finger on a handle drags it; elsewhere it scrolls the page.
  canvas.addEventListener("touchstart", (event) => { if (take(event.touches[0])) event.preventDefault(); }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    app.setGoal(placeOf(event).place);
    app.remember();
  });
}

// Simulated bodies in three dimensions, by WebGL. The camera's angles are MuJoCo's.

import { byId } from "../shared/dom.js";
import { SHAPES } from "./shapes.js";
import { data, goalsOf, state } from "./viewer.js";

const VERTEX = `
attribute vec3 position; attribute vec3 normal; attribute float cap;
uniform mat4 camera; uniform vec4 turn; uniform vec3 place; uniform vec3 scale; uniform float halfLength;
uniform vec3 lamp; uniform float floorHeight; uniform bool shadow;
varying vec3 world; varying vec3 facing;
vec3 turned(vec3 v) { return v + 2.0 * cross(turn.yzw, cross(turn.yzw, v) + turn.x * v); }
void main() {
  world = turned(position * scale + vec3(0.0, 0.0, cap * halfLength)) + place;
  facing = turned(normal / scale);
  if (shadow) world = vec3(world.xy - lamp.xy * (world.z - floorHeight) / lamp.z, floorHeight + 0.0005);
  gl_Position = camera * vec4(world, 1.0);
}`;
const FRAGMENT = `
precision highp float;
uniform vec4 colour; uniform vec4 tile; uniform vec3 lamp; uniform vec3 eye; uniform float tileSize; uniform bool shadow;
uniform float farAway; uniform float glow;
varying vec3 world; varying vec3 facing;
void main() {
  if (shadow) { gl_FragColor = vec4(0.0, 0.0, 0.0, 0.24); return; }
  vec3 n = normalize(facing);
  float lit = max(dot(n, -lamp), 0.0), seen = abs(dot(n, normalize(eye - world)));
  vec3 base = colour.rgb;
  if (tileSize > 0.0) {
    vec2 t = floor(world.xy / tileSize);
    base = mix(base, tile.rgb, mod(t.x + t.y, 2.0));
  }
  vec3 shade = base * min(0.5 + glow + 0.36 * lit + 0.18 * seen, 1.0);
  float haze = tileSize > 0.0 ? smoothstep(0.5 * farAway, farAway, distance(world, eye)) : 0.0;
  gl_FragColor = vec4(mix(shade, vec3(0.933, 0.949, 0.961), haze), colour.a);
}`;

export function bodiesView(canvas) {
  const gl = canvas.getContext("webgl", { alpha: false, antialias: true, stencil: true });
  if (!gl) {
    byId("stage").innerHTML = "<p style='padding:20px'>This browser has no WebGL: open the MP4 or the GIF beside this page.</p>";
    return { draw() {}, help: "" };
  }
  const program = compile(gl), attribute = (name) => gl.getAttribLocation(program, name), uniforms = {};
  const uniform = (name) => (uniforms[name] ??= gl.getUniformLocation(program, name));
  const meshes = {};
  for (const [name, vertices] of Object.entries(SHAPES)) {
    const buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(vertices), gl.STATIC_DRAW);
    meshes[name] = { buffer, count: vertices.length / 7 };
  }
  const scene = data.scene, orbit = { azimuth: 0, elevation: 0, zoom: 1, pan: [0, 0, 0] };
  const lamp = normalized(scene.lamp), UPRIGHT = [1, 0, 0, 0];
  const extent = length(minus(scene.view.high, scene.view.low)) / 2;

  function resetCamera() { Object.assign(orbit, { azimuth: 0, elevation: 0, zoom: 1, pan: [0, 0, 0] }); }

  function cameraFor(part) {
    const view = scene.view, aspect = part.width / part.height, tan = Math.tan((scene.field / 2) * (Math.PI / 180));
    const elevations = { fixed: view.elevation, tracking: view.tracking, top: -90 };
    const elevation = Math.min(-2, Math.max(-90, elevations[state.camera] + orbit.elevation));
    const { forward, right, up } = axes(view.azimuth + orbit.azimuth, elevation);
    let centre = view.low.map((l, i) => (l + view.high[i]) / 2), distance;
    if (state.camera === "tracking") {
      const at = tracked(part.shown[0].moment);
      centre = [at[0], at[1], view.low[2] + 0.05 * view.near];
      distance = view.near / 2 / tan;
    } else {
      let above = -Infinity, below = -Infinity, wide = -Infinity;
      const t = tan / 1.06;
      for (let k = 0; k < 8; k++) {
        const corner = [0, 1, 2].map((i) => ((k >> i) & 1 ? view.high[i] : view.low[i]) - centre[i]);
        const v = dot(corner, up), h = Math.abs(dot(corner, right)), w = dot(corner, forward);
        above = Math.max(above, v - w * t); below = Math.max(below, -v - w * t); wide = Math.max(wide, h / (t * aspect) - w);
      }
      distance = Math.max((above + below) / (2 * t), wide);
      centre = centre.map((c, i) => c + ((above - below) / 2) * up[i]);
    }
    distance *= orbit.zoom;
    centre = centre.map((c, i) => c + orbit.pan[i]);
    const eye = centre.map((c, i) => c - distance * forward[i]);
    return { eye, right, up, distance, farAway: distance + 8 * extent, matrix: project(eye, forward, right, up, tan, aspect, distance / 50, distance + 30 * extent) };
  }

  function tracked(moment) { // the body's place, averaged over a moment
    const episode = moment.episode, from = Math.max(0, moment.low - 6), to = Math.min(episode.steps.length - 1, moment.low + 6);
    const sum = [0, 0];
    for (let i = from; i <= to; i++) {
      const at = scene.tracked >= 0 ? episode.poses.at(i).subarray(7 * scene.tracked, 7 * scene.tracked + 2) : episode.achieved.at(i);
      sum[0] += at[0]; sum[1] += at[1];
    }
    return sum.map((s) => s / (to - from + 1));
  }

  function put(shape, place, turn, scale, halfLength, colour, options = {}) {
    const mesh = meshes[shape];
    gl.bindBuffer(gl.ARRAY_BUFFER, mesh.buffer);
    for (const [name, size, offset] of [["position", 3, 0], ["normal", 3, 12], ["cap", 1, 24]]) {
      gl.enableVertexAttribArray(attribute(name));
      gl.vertexAttribPointer(attribute(name), size, gl.FLOAT, false, 28, offset);
    }
    gl.uniform3fv(uniform("place"), place);
    gl.uniform4fv(uniform("turn"), turn);
    gl.uniform3fv(uniform("scale"), scale);
    gl.uniform1f(uniform("halfLength"), halfLength);
    gl.uniform4fv(uniform("colour"), colour);
    gl.uniform1f(uniform("tileSize"), options.tileSize || 0);
    gl.uniform1f(uniform("glow"), options.glow || 0);
    gl.drawArrays(gl.TRIANGLES, 0, mesh.count);
  }

  function putGeom(geom, moment, tint) {
    let place = geom.pos, turn = geom.quat;
    if (geom.body >= 0) {
      const pose = moment.poses.subarray(7 * geom.body, 7 * geom.body + 7), q = normalized(pose.subarray(3));
      place = plus(pose, rotate(q, geom.pos));
      turn = times(q, geom.quat);
    }
    const [a, b, c] = geom.size, rgba = geom.acts && tint ? [...tint, 1] : geom.rgba;
    if (geom.type === "capsule") put("capsule", place, turn, [a, a, a], b, rgba);
    else if (geom.type === "cylinder") put("cylinder", place, turn, [a, a, b], 0, rgba);
    else if (geom.type === "sphere") put("sphere", place, turn, [a, a, a], 0, rgba);
    else if (geom.body < 0) put(geom.type, place, turn, [1.002 * a, 1.002 * b, c], 0, rgba); // no seam between walls
    else put(geom.type, place, turn, [a, b, c], 0, rgba);
  }

  const tintOf = (part, index) => (part.shown.length > 1 ? rgb(data.tints[index]) : null);

  function putSolids(part) {
    for (const geom of scene.geoms) if (geom.body < 0) putGeom(geom, null, null);
    for (const { moment, index } of part.shown)
      for (const geom of scene.geoms) if (geom.body >= 0) putGeom(geom, moment, tintOf(part, index));
  }

  function putDisc(goal, colour, radius) { // where goals have no height: anywhere above it counts
    if (goal.length >= 3) return;
    put("cylinder", [goal[0], goal[1], scene.floor], UPRIGHT, [radius, radius, 0.08 * radius], 0, [...colour, 1]);
  }

  function putBeam(goal, colour) {
    const r = data.threshold;
    if (goal.length >= 3) return put("sphere", goal, UPRIGHT, [r, r, r], 0, [...colour, 0.55], { glow: 0.2 });
    put("cylinder", [goal[0], goal[1], scene.floor + 1.5 * r], UPRIGHT, [r, r, 1.5 * r], 0, [...colour, 0.25], { glow: 0.2 });
  }

  function putArrow(moment) {
    const [dx, dy] = moment.direction, norm = Math.hypot(dx, dy);
    if (norm < 1e-3) return;
    const long = 0.1 * scene.width, thick = 0.006 * scene.width, at = moment.achieved;
    const height = at.length >= 3 ? at[2] + 1.2 * data.threshold : scene.floor + 2 * data.threshold;
    const angle = Math.atan2(dy, dx), s = Math.SQRT1_2;
    const turn = times([Math.cos(angle / 2), 0, 0, Math.sin(angle / 2)], [s, 0, s, 0]); // z to x, then to the direction
    const along = (share) => [at[0] + (share * long * dx) / norm, at[1] + (share * long * dy) / norm, height];
    const colour = [...rgb(data.colours.direction), 1];
    put("cylinder", along(0.35), turn, [thick, thick, 0.35 * long], 0, colour, { glow: 0.15 });
    put("cone", along(0.85), turn, [2.6 * thick, 2.6 * thick, 0.15 * long], 0, colour, { glow: 0.15 });
  }

  function putTrail(moment, colour) {
    const thick = 0.004 * scene.width, step = Math.max(1, Math.floor(moment.low / 150)), points = [];
    for (let i = 0; i <= moment.low; i += step) points.push(moment.trail.at(i));
    points.push(moment.achieved);
    for (let i = 1; i < points.length; i++) {
      const dx = points[i][0] - points[i - 1][0], dy = points[i][1] - points[i - 1][1], long = Math.hypot(dx, dy);
      const angle = Math.atan2(dy, dx), s = Math.SQRT1_2;
      const turn = times([Math.cos(angle / 2), 0, 0, Math.sin(angle / 2)], [s, 0, s, 0]);
      const middle = [points[i - 1][0] + dx / 2, points[i - 1][1] + dy / 2, scene.floor];
      put("capsule", middle, turn, [thick, thick, thick], long / 2, [...colour, 1], { glow: 0.1 });
    }
  }

  function drawPart(part) {
    const camera = cameraFor(part);
    part.camera = camera;
    gl.viewport(part.x, 0, part.width, part.height);
    gl.scissor(part.x, 0, part.width, part.height);
    gl.clearColor(0.933, 0.949, 0.961, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.uniformMatrix4fv(uniform("camera"), false, camera.matrix);
    gl.uniform3fv(uniform("eye"), camera.eye);
    gl.uniform1f(uniform("farAway"), camera.farAway);
    gl.uniform1i(uniform("shadow"), 0);
    const wide = 40 * extent;
    const [x, y] = scene.view.low.map((l, i) => (l + scene.view.high[i]) / 2);
    put("plane", [x, y, scene.floor], UPRIGHT, [wide, wide, 1], 0, [...rgb(data.colours.floor), 1], { tileSize: scene.tile });
    shadows(part);
    for (const { moment, index } of part.shown)
      if (moment.trail) putTrail(moment, tintOf(part, index) || rgb(data.colours.trail));
    putSolids(part);
    for (const { moment } of part.shown) if (moment.direction) putArrow(moment);
    const marks = part.shown.filter((one) => one.moment.subgoal).map((one) => [one.moment.subgoal, rgb(data.colours.subgoal), 0.98]);
    marks.push(...goalsOf(part).map((goal) => [goal, rgb(data.colours.goal), 1]));
    for (const [goal, colour, size] of marks) putDisc(goal, colour, size * data.threshold);
    gl.enable(gl.BLEND); gl.depthMask(false);
    for (const [goal, colour] of marks) putBeam(goal, colour);
    gl.depthMask(true); gl.disable(gl.BLEND);
  }

  function shadows(part) { // every point of the floor is darkened once, whatever lies above it
    gl.enable(gl.BLEND); gl.enable(gl.STENCIL_TEST); gl.depthMask(false);
    gl.stencilFunc(gl.EQUAL, 0, 255); gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    gl.uniform1i(uniform("shadow"), 1);
    putSolids(part);
    gl.uniform1i(uniform("shadow"), 0);
    gl.depthMask(true); gl.disable(gl.STENCIL_TEST); gl.disable(gl.BLEND);
  }

  let latest = [];
  function draw(all) {
    gl.useProgram(program);
    gl.enable(gl.DEPTH_TEST); gl.enable(gl.SCISSOR_TEST);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.scissor(0, 0, canvas.width, canvas.height);
    gl.clearColor(1, 1, 1, 1); gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform3fv(uniform("lamp"), lamp);
    gl.uniform1f(uniform("floorHeight"), scene.floor);
    gl.uniform4fv(uniform("tile"), [...rgb(data.colours.tile), 1]);
    all.forEach(drawPart);
    latest = all;
  }

  steer(canvas, orbit, () => latest[0]?.camera);
  return { draw, resetCamera, help: "drag: turn; right or shift: move; wheel: nearer; double click: back; space, arrows" };
}

// Dragging turns the camera, with the right button or shift it moves; the wheel, or two fingers, bring it nearer.
function steer(canvas, orbit, camera) {
  const pointers = new Map();
  canvas.onpointerdown = (event) => { pointers.set(event.pointerId, event); canvas.setPointerCapture(event.pointerId); };
  canvas.onpointerup = canvas.onpointercancel = (event) => pointers.delete(event.pointerId);
  canvas.oncontextmenu = (event) => event.preventDefault();
  canvas.ondblclick = () => Object.assign(orbit, { azimuth: 0, elevation: 0, zoom: 1, pan: [0, 0, 0] });
  canvas.onwheel = (event) => { orbit.zoom *= Math.exp(event.deltaY / 900); event.preventDefault(); };
  canvas.onpointermove = (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
    if (pointers.size === 2) {
      const other = [...pointers.values()].find((p) => p.pointerId !== event.pointerId);
      const apart = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
      orbit.zoom *= apart(before) / Math.max(apart(event), 1);
    } else if (event.shiftKey || event.buttons & 2) {
      const c = camera(), size = c.distance / canvas.clientHeight / 1.9;
      orbit.pan = orbit.pan.map((p, i) => p - size * dx * c.right[i] + size * dy * c.up[i]);
    } else {
      orbit.azimuth -= dx / 3;
      orbit.elevation -= dy / 3;
    }
    pointers.set(event.pointerId, event);
  };
}

function compile(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  return program;
}

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const plus = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const minus = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const length = (a) => Math.sqrt([...a].reduce((sum, x) => sum + x * x, 0));
const normalized = (a) => { const l = length(a) || 1; return [...a].map((x) => x / l); };
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
// Quaternions are w, x, y, z, as MuJoCo's.
const rotate = ([w, x, y, z], v) => {
  const q = [x, y, z], t = cross(q, v).map((c, i) => c + w * v[i]), r = cross(q, t);
  return [v[0] + 2 * r[0], v[1] + 2 * r[1], v[2] + 2 * r[2]];
};
const times = ([a, b, c, d], [e, f, g, h]) => [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g,
                                               a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e];

function axes(azimuth, elevation) {
  const a = (azimuth * Math.PI) / 180, e = (elevation * Math.PI) / 180;
  const forward = [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
  const right = [Math.sin(a), -Math.cos(a), 0];
  return { forward, right, up: cross(right, forward) };
}

function project(eye, forward, right, up, tan, aspect, near, far) {
  const f = 1 / tan, depth = (far + near) / (near - far), shift = (2 * far * near) / (near - far);
  const row = (v, k) => [k * v[0], k * v[1], k * v[2], -k * dot(v, eye)];
  const back = row(forward, -1);
  const rows = [row(right, f / aspect), row(up, f), back.map((x, i) => depth * x + (i === 3 ? shift : 0)), back.map((x) => -x)];
  return new Float32Array([0, 1, 2, 3].flatMap((column) => rows.map((r) => r[column])));
}

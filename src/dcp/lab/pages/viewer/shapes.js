// Unit shapes as triangles: [x, y, z, nx, ny, nz, cap] a vertex. A vertex is placed at position * scale, and then moved
// by cap * half along z: so one sphere cut in two is a capsule of any length.

function grid(rows, columns, vertexAt) {
  const out = [];
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const [a, b, c, d] = [vertexAt(i, j), vertexAt(i, j + 1), vertexAt(i + 1, j), vertexAt(i + 1, j + 1)];
      out.push(...a, ...c, ...b, ...b, ...c, ...d);
    }
  return out;
}

const ROUND = 28;
const around = (j) => [Math.cos((2 * Math.PI * j) / ROUND), Math.sin((2 * Math.PI * j) / ROUND)];

function sphere(capped) {
  // From the north pole down. A capsule's equator is doubled: once at the upper end, once at the lower.
  const half = ROUND / 4, angles = [];
  for (let i = 0; i <= half; i++) angles.push([(Math.PI / 2) * (i / half), capped ? 1 : 0]);
  for (let i = capped ? 0 : 1; i <= half; i++) angles.push([(Math.PI / 2) * (1 + i / half), capped ? -1 : 0]);
  return grid(angles.length - 1, ROUND, (i, j) => {
    const [angle, cap] = angles[i], [x, y] = around(j), s = Math.sin(angle), z = Math.cos(angle);
    return [s * x, s * y, z, s * x, s * y, z, cap];
  });
}

function cylinder(topRadius) {
  // Between z = -1 and 1; topRadius 0 makes it a cone.
  const slope = (1 - topRadius) / 2, n = Math.hypot(1, slope);
  const side = grid(1, ROUND, (i, j) => {
    const [x, y] = around(j), r = i ? 1 : topRadius;
    return [r * x, r * y, i ? -1 : 1, x / n, y / n, slope / n, 0];
  });
  const lid = (z, radius) => grid(1, ROUND, (i, j) => {
    const [x, y] = around(j), r = i ? radius : 0;
    return [r * x, (z > 0 ? 1 : -1) * r * y, z, 0, 0, z, 0];
  });
  return [...side, ...lid(1, topRadius), ...lid(-1, 1)];
}

function box() {
  const out = [];
  for (const axis of [0, 1, 2])
    for (const side of [1, -1]) {
      const normal = [0, 0, 0];
      normal[axis] = side;
      out.push(...grid(1, 1, (i, j) => {
        const p = [0, 0, 0];
        p[axis] = side;
        p[(axis + 1) % 3] = i ? 1 : -1;
        p[(axis + 2) % 3] = (j ? 1 : -1) * side;
        return [...p, ...normal, 0];
      }));
    }
  return out;
}

const plane = () => grid(1, 1, (i, j) => [i ? 1 : -1, j ? 1 : -1, 0, 0, 0, 1, 0]);
export const SHAPES = { sphere: sphere(false), ellipsoid: sphere(false), capsule: sphere(true), cylinder: cylinder(1),
                 cone: cylinder(0), box: box(), plane: plane() };

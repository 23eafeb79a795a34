/* Geoms as meshes, and the part of the arena to look at. */
"use strict";

/* The range of x and y in which there is free floor, and a little more. */
function shownPart({ goals, within }) {
  if (!goals.walls.length) return goals.extent;
  const free = new GoalSpace(goals).free(), xs = free.map((p) => p[0]), ys = free.map((p) => p[1]), more = 2 * within;
  return [Math.min(...xs) - more, Math.max(...xs) + more, Math.min(...ys) - more, Math.max(...ys) + more];
}

function geometryOf({ kind, size, vertices, faces }) {
  const [radius, half] = size;
  if (kind === "box") return new THREE.BoxGeometry(2 * size[0], 2 * size[1], 2 * size[2]);
  if (kind === "capsule") return new THREE.CapsuleGeometry(radius, 2 * half, 10, 24).rotateX(Math.PI / 2);
  if (kind === "cylinder") return new THREE.CylinderGeometry(radius, radius, 2 * half, 32).rotateX(Math.PI / 2);
  if (kind === "mesh") {
    const made = new THREE.BufferGeometry();
    made.setAttribute("position", new THREE.BufferAttribute(new Float32Array(vertices), 3));
    made.setIndex(faces);
    made.computeVertexNormals();
    return made;
  }
  const ball = new THREE.SphereGeometry(1, 32, 20);
  return kind === "ellipsoid" ? ball.scale(...size) : ball.scale(radius, radius, radius);
}

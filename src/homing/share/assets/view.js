/* The picture: floor, walls, robot, goal, path and critic map, with three.js. z points up. */
"use strict";

const FOV = 45; // degrees, vertical
const TRAIL = 420; // points of the path
const LOOKS = {
  light: { back: 0xeef1f4, ground: 0xe3e8ec, grid: 0xc3ccd4, path: [0.12, 0.44, 0.62] },
  dark: { back: 0x15191e, ground: 0x232a31, grid: 0x3a444e, path: [0.45, 0.75, 0.92] },
};
// Viridis at nine points, which the map interpolates.
const VIRIDIS = [
  [68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140], [40, 174, 128], [94, 201, 98],
  [173, 220, 48], [253, 231, 37],
];

class View {
  constructor(canvas, data) {
    this.data = data;
    this.canvas = canvas;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.looks = LOOKS[dark.matches ? "dark" : "light"];
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, powerPreference: "low-power" });
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.renderer.shadowMap.enabled = true;
    this.scene = new THREE.Scene();
    this.scene.background = new THREE.Color(this.looks.back);
    this.camera = new THREE.PerspectiveCamera(FOV, 1, 0.01, 1000);
    this.camera.up.set(0, 0, 1);
    this.controls = new THREE.OrbitControls(this.camera, canvas);
    this.controls.enableDamping = true;
    this.controls.maxPolarAngle = 1.5;
    const [x0, x1, y0, y1] = data.goals.extent;
    this.size = Math.max(x1 - x0, y1 - y0);
    this.centre = [(x0 + x1) / 2, (y0 + y1) / 2];
    this.seen = shownPart(data);
    this.ground = Math.min(0, ...data.shapes.filter((s) => s.kind === "plane").map((s) => s.pos[2]));
    this.following = false;
    this.robot = new THREE.Vector3(...this.centre, 0);
    this.walls = [];
    this.addLights();
    this.addGround();
    this.addShapes();
    this.addGoals();
    this.addTrail();
    this.addMap();
    this.resize();
    addEventListener("resize", () => this.resize());
  }

  addLights() {
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0x8a929a, 2.0));
    this.sun = new THREE.DirectionalLight(0xffffff, 1.9);
    const reach = this.data.arm ? this.size : Math.min(this.size, 10), camera = this.sun.shadow.camera;
    this.sunlight = new THREE.Vector3(-0.35, -0.5, 1).multiplyScalar(2 * reach);
    [camera.left, camera.right, camera.bottom, camera.top] = [-reach, reach, -reach, reach];
    camera.far = 5 * reach;
    this.sun.shadow.mapSize.set(2048, 2048);
    this.sun.shadow.bias = -0.0005;
    this.sun.shadow.normalBias = 0.003 * reach;
    this.sun.castShadow = true;
    this.scene.add(this.sun, this.sun.target);
  }

  addGround() {
    const [x0, x1, y0, y1] = this.data.goals.extent, margin = 0.1 * this.size;
    const wide = x1 - x0 + 2 * margin, deep = y1 - y0 + 2 * margin;
    const floor = new THREE.Mesh(
      new THREE.PlaneGeometry(wide, deep),
      new THREE.MeshLambertMaterial({ color: this.looks.ground }),
    );
    floor.position.set(...this.centre, this.ground);
    floor.receiveShadow = true;
    const cell = this.data.arm ? 0.05 : this.size > 30 ? 4 : 1, points = [];
    for (let x = Math.ceil((x0 - margin) / cell) * cell; x <= x1 + margin; x += cell) points.push([x, y0 - margin, x, y1 + margin]);
    for (let y = Math.ceil((y0 - margin) / cell) * cell; y <= y1 + margin; y += cell) points.push([x0 - margin, y, x1 + margin, y]);
    this.scene.add(floor, this.gridLines(points));
  }

  /* Lines as thin flat boxes, so that they have a width in metres. */
  gridLines(points) {
    const w = 0.0006 * this.size, z = this.ground + 0.0004 * this.size, places = [];
    for (const [ax, ay, bx, by] of points) {
      const [dx, dy] = ax === bx ? [w, 0] : [0, w];
      const [a, b, c, d] = [[ax - dx, ay - dy], [ax + dx, ay + dy], [bx - dx, by - dy], [bx + dx, by + dy]];
      for (const [x, y] of ax === bx ? [a, b, c, b, d, c] : [a, c, b, b, c, d]) places.push(x, y, z);
    }
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(places), 3));
    return new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ color: this.looks.grid, side: THREE.DoubleSide }));
  }

  addShapes() {
    this.links = Array.from({ length: this.data.links }, () => new THREE.Group());
    this.scene.add(...this.links);
    for (const shape of this.data.shapes) {
      if (shape.kind === "plane") continue;
      const [r, g, b, a] = shape.rgba;
      const colour = new THREE.Color().setRGB(r, g, b, THREE.SRGBColorSpace);
      const material = new THREE.MeshStandardMaterial({ color: colour, roughness: 0.65, transparent: a < 1, opacity: a });
      const mesh = new THREE.Mesh(geometryOf(shape), material);
      const [w, x, y, z] = shape.rot;
      mesh.position.set(...shape.pos);
      mesh.quaternion.set(x, y, z, w);
      // Shadows cover the surroundings of the robot only, so walls cast none.
      mesh.castShadow = a >= 1 && shape.link >= 0;
      mesh.receiveShadow = a >= 1;
      (shape.link < 0 ? this.scene : this.links[shape.link]).add(mesh);
      if (shape.link < 0) this.walls.push(mesh);
    }
  }

  addGoals() {
    const { within, goals, arm } = this.data;
    this.markers = goals.axes.map((_, k) => {
      const colour = new THREE.Color().setRGB(...goals.colours[k % goals.colours.length], THREE.SRGBColorSpace);
      const glass = (opacity) => new THREE.MeshBasicMaterial({ color: colour, transparent: true, opacity, depthWrite: false });
      const ball = new THREE.Mesh(new THREE.SphereGeometry(within, 32, 20), glass(0.35));
      const ring = new THREE.Mesh(new THREE.TorusGeometry(within, 0.04 * within, 10, 64), glass(0.9));
      const post = new THREE.Mesh(new THREE.CylinderGeometry(0.05, 0.05, 3, 12).rotateX(Math.PI / 2), glass(0.7));
      const group = new THREE.Group();
      post.position.z = 1.5;
      post.visible = !arm;
      group.add(ball, ring, post);
      this.scene.add(group);
      return { group, ball, ring };
    });
  }

  showGoal(places, reached) {
    this.markers.forEach(({ group, ball, ring }, k) => {
      const [x, y, z] = places[k], height = z === null ? this.ground : z;
      group.position.set(x, y, this.ground);
      ball.position.z = height - this.ground;
      ring.position.z = 0.002 * this.size;
      ball.material.opacity = reached ? 0.6 : 0.3;
    });
    this.goalHeight = this.data.arm && places[0][2] !== null ? places[0][2] : this.ground;
  }

  addTrail() {
    this.trail = [];
    const geometry = new THREE.BufferGeometry(), count = 2 * TRAIL;
    geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(3 * count), 3));
    geometry.setAttribute("color", new THREE.BufferAttribute(new Float32Array(4 * count), 4));
    const faces = [];
    for (let k = 0; k < TRAIL - 1; k++) faces.push(2 * k, 2 * k + 1, 2 * k + 2, 2 * k + 1, 2 * k + 3, 2 * k + 2);
    geometry.setIndex(faces);
    const material = new THREE.MeshBasicMaterial({ vertexColors: true, transparent: true, side: THREE.DoubleSide, depthWrite: false });
    this.ribbon = new THREE.Mesh(geometry, material);
    this.ribbon.frustumCulled = false;
    this.scene.add(this.ribbon);
  }

  clearTrail() {
    this.trail = [];
    this.drawTrail();
  }

  extendTrail(x, y) {
    const last = this.trail[this.trail.length - 1];
    if (last && Math.hypot(x - last[0], y - last[1]) < 0.002 * this.size) return;
    this.trail.push([x, y]);
    if (this.trail.length > TRAIL) this.trail.shift();
    this.drawTrail();
  }

  drawTrail() {
    const { position, color } = this.ribbon.geometry.attributes, n = this.trail.length;
    const half = 0.0022 * this.size, z = this.ground + 0.0015 * this.size;
    for (let k = 0; k < n; k++) {
      const [ax, ay] = this.trail[Math.max(k - 1, 0)], [bx, by] = this.trail[Math.min(k + 1, n - 1)];
      const far = Math.hypot(bx - ax, by - ay) || 1, [x, y] = this.trail[k];
      const nx = (-(by - ay) / far) * half, ny = ((bx - ax) / far) * half, alpha = 0.85 * ((k + 1) / n) ** 1.5;
      position.setXYZ(2 * k, x + nx, y + ny, z);
      position.setXYZ(2 * k + 1, x - nx, y - ny, z);
      for (const i of [2 * k, 2 * k + 1]) color.setXYZW(i, ...this.looks.path, alpha);
    }
    this.ribbon.geometry.setDrawRange(0, Math.max(0, 6 * (n - 1)));
    position.needsUpdate = color.needsUpdate = true;
  }

  addMap() {
    const [x0, x1, y0, y1] = this.data.goals.extent;
    this.map = new THREE.Mesh(
      new THREE.PlaneGeometry(x1 - x0, y1 - y0),
      new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.8, depthWrite: false }),
    );
    this.map.position.set(...this.centre, this.ground + 0.0008 * this.size);
    this.map.visible = false;
    this.scene.add(this.map);
  }

  /* Values by cell, the first row with the smallest y; NaN is not drawn. */
  drawMap(values, columns, rows, low, high) {
    if (!this.texture) {
      this.texture = new THREE.DataTexture(new Uint8Array(4 * columns * rows), columns, rows);
      this.texture.colorSpace = THREE.SRGBColorSpace;
      this.texture.magFilter = this.texture.minFilter = THREE.LinearFilter;
      this.map.material.map = this.texture;
      this.map.material.needsUpdate = true;
    }
    const pixels = this.texture.image.data;
    for (let k = 0; k < values.length; k++) {
      const level = Math.min(Math.max((values[k] - low) / Math.max(high - low, 1e-9), 0), 1) * (VIRIDIS.length - 1);
      const at = Math.min(Math.floor(level) || 0, VIRIDIS.length - 2), mix = level - at;
      for (let c = 0; c < 3; c++) pixels[4 * k + c] = VIRIDIS[at][c] * (1 - mix) + VIRIDIS[at + 1][c] * mix;
      pixels[4 * k + 3] = Number.isNaN(values[k]) ? 0 : 255;
    }
    this.texture.needsUpdate = true;
  }

  /* Frames of all links, between two steps. */
  pose(before, after, mix) {
    const turn = new THREE.Quaternion();
    this.links.forEach((link, k) => {
      const at = (poses, i) => poses.pos[3 * k + i] * 1;
      link.position.set(...[0, 1, 2].map((i) => at(before, i) * (1 - mix) + at(after, i) * mix));
      const [a, b] = [before, after].map((p) => p.rot.subarray(4 * k, 4 * k + 4));
      link.quaternion.set(a[1], a[2], a[3], a[0]);
      link.quaternion.slerp(turn.set(b[1], b[2], b[3], b[0]), mix);
    });
    const moved = this.links[this.data.root].position.clone().sub(this.robot);
    this.robot.add(moved);
    if (this.following) {
      moved.z = 0;
      this.camera.position.add(moved);
      this.controls.target.add(moved);
    }
    this.sun.target.position.copy(this.robot);
    this.sun.position.copy(this.robot).add(this.sunlight);
  }

  draw() {
    this.controls.update();
    this.renderer.render(this.scene, this.camera);
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / Math.max(height, 1);
    this.camera.updateProjectionMatrix();
    if (!this.following) this.home();
  }

  /* The whole arena, without the outer walls. */
  home() {
    this.following = false;
    const [x0, x1, y0, y1] = this.seen, t = Math.tan((FOV * Math.PI) / 360);
    const angle = this.camera.aspect < 0.8 ? 1.25 : this.data.arm ? 1.1 : this.data.open ? 0.8 : 1.15;
    const fit = Math.max((0.5 * (x1 - x0)) / (t * this.camera.aspect), (0.5 * (y1 - y0) * Math.sin(angle)) / t);
    const far = 1.2 * fit + 0.25 * (y1 - y0) * Math.cos(angle), x = (x0 + x1) / 2, y = (y0 + y1) / 2;
    this.controls.target.set(x, y, this.ground);
    this.camera.position.set(x, y - far * Math.cos(angle), this.ground + far * Math.sin(angle));
    this.limitZoom(far);
  }

  follow() {
    this.following = true;
    const far = this.data.arm ? this.size : Math.min(0.6 * this.size, 9) / Math.min(1, this.camera.aspect) ** 0.5;
    this.controls.target.set(this.robot.x, this.robot.y, this.data.arm ? this.robot.z : this.ground + 0.4);
    this.camera.position.set(this.robot.x, this.robot.y - 0.8 * far, this.ground + 0.6 * far);
    this.limitZoom(far);
  }

  limitZoom(far) {
    this.controls.minDistance = 0.1 * Math.min(far, 0.5 * this.size);
    this.controls.maxDistance = 4 * Math.max(far, this.size);
    this.camera.near = 0.002 * far;
    this.camera.far = 20 * Math.max(far, this.size);
    this.camera.updateProjectionMatrix();
    this.controls.update();
  }

  /* x, y of the floor or wall under a point of the window; null beside the floor. */
  floorAt(x, y) {
    const box = this.canvas.getBoundingClientRect(), ray = new THREE.Raycaster();
    const point = new THREE.Vector2((2 * (x - box.left)) / box.width - 1, 1 - (2 * (y - box.top)) / box.height);
    ray.setFromCamera(point, this.camera);
    const wall = ray.intersectObjects(this.walls)[0];
    if (wall && !this.data.arm) return [wall.point.x, wall.point.y];
    const height = this.goalHeight || this.ground;
    const hit = ray.ray.intersectPlane(new THREE.Plane(new THREE.Vector3(0, 0, 1), -height), new THREE.Vector3());
    return hit ? [hit.x, hit.y] : null;
  }

  /* Pixel of the window where a point of the floor is drawn. */
  pixelOf(x, y) {
    this.camera.updateMatrixWorld();
    const box = this.canvas.getBoundingClientRect();
    const at = new THREE.Vector3(x, y, this.goalHeight || this.ground).project(this.camera);
    return [box.left + ((at.x + 1) / 2) * box.width, box.top + ((1 - at.y) / 2) * box.height];
  }
}

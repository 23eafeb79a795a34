"""The page: a scene that follows the session, and controls that ask it for things."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import viser
from viser import uplot

from homing.play import shapes
from homing.play.session import Choice, Session, environments_for
from homing.viz import render

FRAMES, TEXTS, MAPS = 30.0, 5.0, 4.0  # times a second that scene, words and the critic's map are sent
PATH_RGB, GOAL_OPACITY, MAP_OPACITY = (40, 70, 160), 0.45, 0.85
HINT = "**Click the floor** or drag the goal: the agent goes there. Drag the robot to push it."


class Page:
    """One page for all who open it: they share the robot."""

    def __init__(self, server: viser.ViserServer, session: Session):
        self.server, self.session = server, session
        self._shown, self._due = -1, {"frame": 0.0, "text": 0.0, "map": 0.0}
        server.gui.configure_theme(
            control_layout="floating", show_logo=False, show_share_button=False, brand_color=(36, 110, 90)
        )
        server.scene.set_up_direction("+z")
        server.scene.configure_default_lights(cast_shadow=False)  # shadows are slow where no GPU draws them
        server.scene.on_click()(self._clicked)
        server.on_client_connect(self._look)
        self._controls()

    # Controls.

    def _controls(self) -> None:
        gui, session = self.server.gui, self.session
        self.status = gui.add_markdown("")
        gui.add_markdown(HINT)
        gui.add_markdown("Distance to the goal in metres, and how near counts as reached:")
        self.plot = gui.add_uplot(
            (np.zeros(1),) * 3,
            (
                uplot.Series(label="seconds"),
                uplot.Series(label="distance", stroke="#246e5a", width=2),
                uplot.Series(label="counts as reached", stroke="#e07b39", width=1),
            ),
            scales={"x": uplot.Scale(time=False)},
            legend=uplot.Legend(show=False),
            height=150,
        )
        with gui.add_folder("Time"):
            self.pause = gui.add_checkbox("Pause", False)
            self.speed = gui.add_slider("Speed", 0.1, 2.0, 0.1, 1.0)
        with gui.add_folder("Goal and robot"):
            self._button("New goal", session.new_goal)
            self.wander = gui.add_checkbox("New goal once reached", False)
            self._button("Push", self._push_anywhere)
            self.strength = gui.add_slider("Strength", 0.5, 10.0, 0.5, 3.0, hint="m/s, of an arm rad/s")
            self._button("Start again", session.restart)
        with gui.add_folder("Show"):
            self.path = gui.add_checkbox("Path", True)
            self.map = gui.add_checkbox("Critic's map", False)
        self.choices = gui.add_folder("Policy")
        self.pause.on_update(lambda _: setattr(session, "paused", self.pause.value))
        self.speed.on_update(lambda _: setattr(session, "speed", float(self.speed.value)))
        self.wander.on_update(lambda _: setattr(session, "wander", self.wander.value))

    def _button(self, label: str, action: Any) -> None:
        self.server.gui.add_button(label).on_click(lambda _: self.session.ask(action))

    def _offer(self) -> None:
        """What else can be played, for what is played now."""
        session, choice = self.session, self.session.choice
        for child in getattr(self, "_offers", []):
            child.remove()
        policies = session.sim.actor.policies
        with self.choices:
            gui = self.server.gui
            source = gui.add_dropdown("Policy", session.sources, initial_value=choice.source)
            source.on_update(lambda _: self._choose(Choice(source.value)))
            own = session.sim.env.spec.id
            home = policies.choice.env if policies else choice.source
            places = environments_for(policies, home)
            place = gui.add_dropdown("Environment", tuple(dict.fromkeys((*places, own))), initial_value=own)
            place.on_update(
                lambda _: self._choose(Choice(choice.source, choice.seed, choice.which, place.value))
            )
            self._offers = [source, place]
            if policies is not None:
                self._offers += self._seeds_and_checkpoints(policies)

    def _seeds_and_checkpoints(self, policies: Any) -> list[Any]:
        choice, gui = self.session.choice, self.server.gui
        now = self.session.sim.actor.seed
        seed = gui.add_dropdown("Seed", tuple(map(str, policies.seeds)), initial_value=str(now))
        seed.on_update(
            lambda _: self._choose(Choice(choice.source, int(seed.value), choice.which, choice.env))
        )
        if not Path(choice.source).is_dir():
            return [seed]
        which = gui.add_dropdown("Checkpoint", ("last", "best"), initial_value=choice.which)
        which.on_update(lambda _: self._choose(Choice(choice.source, choice.seed, which.value, choice.env)))
        return [seed, which]

    def _choose(self, choice: Choice) -> None:
        if choice == self.session.choice:
            return
        self.status.content = f"### Preparing {choice.env or choice.source} …\nThe first time takes a while."
        self.session.ask(lambda: self.session.choose(choice))

    # What a person does in the scene.

    def _clicked(self, event: viser.SceneClickEvent) -> None:
        place = self._on_floor(event.ray_origin, event.ray_direction)
        if place is not None:
            self.session.ask(lambda: self.session.aim(place, self._nearest_part(place)))

    async def _goal_dragged(self, event: Any, part: int) -> None:
        origin = np.asarray(event.client.camera.position)
        place = self._on_floor(origin, np.asarray(event.end_position) - origin)
        if place is not None:
            self.session.ask(lambda: self.session.aim(place, part))

    async def _robot_dragged(self, event: Any) -> None:
        if event.phase != "end":
            return
        pull = np.subtract(event.end_position, event.start_position)[:2]
        if np.linalg.norm(pull) > 0:
            self.session.ask(lambda: self.session.push((pull[0], pull[1]), float(self.strength.value)))

    def _push_anywhere(self) -> None:
        angle = np.random.default_rng().uniform(-np.pi, np.pi)
        self.session.push((np.cos(angle), np.sin(angle)), float(self.strength.value))

    def _on_floor(self, origin: Any, direction: Any) -> tuple[float, float] | None:
        """Where a ray meets the height that goals lie at; None if it points away."""
        origin, direction = np.asarray(origin, float), np.asarray(direction, float)
        if abs(direction[2]) < 1e-9:
            return None
        far = (self.height - origin[2]) / direction[2]
        if far <= 0:
            return None
        x, y = (origin + far * direction)[:2]
        return float(x), float(y)

    def _nearest_part(self, place: tuple[float, float]) -> int:
        points = self.session.sim.space.points(self.session.sim.goal)
        return int(np.argmin(np.linalg.norm(points - np.asarray(place), axis=-1)))

    # Drawing.

    def show(self) -> None:
        """Send what has changed since the last time, as often as it is seen."""
        if self._shown != self.session.version:
            self._build()
        if self._time_for("frame", FRAMES):
            self._draw()
        if self._time_for("text", TEXTS):
            self._tell()
        if self.map.value and self._time_for("map", MAPS):
            self._draw_map()
        self._map_image.visible = bool(self.map.value) and self.session.sim.has_critic

    def _time_for(self, what: str, times: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + 1.0 / times
        return True

    def _build(self) -> None:
        """The scene of what is played now."""
        self._shown = self.session.version
        sim, scene = self.session.sim, self.server.scene
        spec = sim.env.scene.spec
        with self.server.atomic():
            for handle in getattr(self, "_scene", []):
                handle.remove()
            built = shapes.build(scene, spec)
            self.links, self.ground, self._lift = built.links, built.ground, built.line
            arm = render.is_arm(spec)
            self.height = float(render.goal_markers(spec, sim.goal)[0].pos[2]) if arm else self.ground
            self._goals = shapes.add_goals(scene, spec, sim.goal, GOAL_OPACITY)
            for part, handle in self._goals:
                # A coroutine, also for viser, which would not await what a lambda returns.
                handle.on_drag("left")(functools.partial(self._goal_dragged, part=part))
            for handle in built.grips:
                handle.on_drag("left")(self._robot_dragged)
            self._path = scene.add_line_segments("/path", np.zeros((1, 2, 3)), PATH_RGB, thickness=built.line)
            self._map_image = shapes.add_floor_image(scene, spec, built.ground)
            self._scene = [*built.handles, *(h for _, h in self._goals), self._path, self._map_image]
        for client in self.server.get_clients().values():
            self._look(client)
        self._offer()
        self._draw()
        self._tell()

    def _look(self, client: viser.ClientHandle) -> None:
        """Show the whole scene in that part of the window which the controls leave free."""
        if self._shown < 0:
            return
        camera = client.camera
        view = shapes.view(self.session.sim, camera.image_width, camera.image_height)
        camera.fov = view.fov
        camera.position, camera.look_at = view.position, view.target

    def _draw(self) -> None:
        sim = self.session.sim
        with self.server.atomic():
            for k, frame in enumerate(self.links):
                frame.position, frame.wxyz = sim.moment.pos[k], sim.moment.rot[k]
            shapes.place_goals(self._goals, sim.env.scene.spec, sim.goal)
            self._path.visible = bool(self.path.value)
            if self.path.value and len(self.session.trail) > 1:
                trail = np.asarray(self.session.trail)
                points = np.column_stack([trail, np.full(len(trail), self.height + self._lift)])
                self._path.points = np.stack([points[:-1], points[1:]], axis=1).astype(np.float32)

    def _draw_map(self) -> None:
        if self.session.sim.has_critic:
            sim = self.session.sim
            self._map_image.image = shapes.heat(sim.critic(), sim.space, MAP_OPACITY)

    def _tell(self) -> None:
        session, sim = self.session, self.session.sim
        reached = " · **reached**" if sim.moment.reached else ""
        pace = "paused" if session.paused else f"{session.pace or 0:.1f} × real time"
        critic = "" if sim.has_critic or not self.map.value else "\n\nIt has no critic to map."
        wrong = f"\n\n⚠ {session.message}" if session.message else ""
        self.status.content = (
            f"### {sim.env.spec.id}\n{sim.actor.label}\n\n"
            f"distance **{sim.moment.distance:.2f} m**{reached}\n\n"
            f"{pace} (could be {sim.dt / sim.step_seconds:.0f} ×){critic}{wrong}"
        )
        if session.history:
            seconds, distances = np.array(session.history).T
            self.plot.data = (seconds, distances, np.full_like(seconds, sim.env.task.within))

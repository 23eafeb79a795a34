"""The page: a scene that follows the session, and controls that submit commands to it."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import numpy as np
import viser
from viser import uplot

from homing.play import shapes
from homing.play.controls import Control, Controls
from homing.play.height import height_controls
from homing.play.pages import GALLERY
from homing.play.pointer import Pointer
from homing.play.protocol import Check
from homing.play.reporting import report
from homing.play.session import PUSHES, SPEEDS, Session
from homing.play.sources import CHECKPOINTS, Choice, offered_environments
from homing.play.status import loading, status
from homing.policies import Policies
from homing.viz import render

RATES = {"scene": 30.0, "trajectory": 10.0, "status": 5.0, "critic": 4.0}  # updates a second
TRAJECTORY_RGB, GOAL_OPACITY, MAP_OPACITY = (20, 40, 150), 0.45, 0.85
HINT = "**Click the floor** or drag the goal to move it. Drag the robot to push it."
KEYS = (
    "Keys: **N** new goal · **G** one after the other · **P** pause · **R** reset · **X** push · "
    "**T** trajectory · **C** critic"
)


def set_theme(gui: viser.GuiApi) -> None:
    gui.configure_theme(
        control_layout="floating", show_logo=False, show_share_button=False, brand_color=(36, 110, 90)
    )


class Page:
    """One page, shared by all who open it."""

    def __init__(self, server: viser.ViserServer, session: Session, checks: dict[str, Check]):
        self.server, self.session = server, session
        self._shown, self._due = -1, dict.fromkeys(RATES, 0.0)
        self._scene: list[viser.SceneNodeHandle] = []
        self._choices: list[Control] = []
        self.pointer = Pointer(session, lambda: float(self.push_speed.value))
        set_theme(server.gui)
        server.scene.set_up_direction("+z")
        server.scene.configure_default_lights(cast_shadow=False)  # shadows are slow without a GPU
        server.scene.on_click()(self.pointer.clicked)
        server.on_client_connect(self._connected)
        self.controls = Controls(server.gui, checks)
        self._add_controls()
        self._add_shortcuts()

    # Controls.

    def _add_controls(self) -> None:
        gui, session, add = self.server.gui, self.session, self.controls
        self.status = gui.add_markdown("")
        gui.add_markdown(f"{HINT}\n\n{KEYS}")
        self._add_plot()
        with gui.add_folder("Time"):
            self.pause = add.checkbox("Pause", False, lambda value: setattr(session, "paused", value))
            self.speed = add.slider("Speed", SPEEDS, 0.1, 1.0, lambda value: setattr(session, "speed", value))
        with gui.add_folder("Goal and robot"):
            add.button("New goal", lambda: session.submit(session.sample_goal))
            self.auto_goal = add.checkbox(
                "New goal when reached", False, lambda value: setattr(session, "auto_goal", value)
            )
            add.button("Push", lambda: session.submit(self.pointer.push_anywhere))
            self.push_speed = add.slider("Push speed", PUSHES, 0.5, 3.0, hint="m/s; rad/s for an arm")
            add.button("Reset", lambda: session.submit(session.reset))
        with gui.add_folder("Show"):
            self.trajectory = add.checkbox("Trajectory", True)
            self.critic = add.checkbox("Critic map", False)
        self.policy_folder = gui.add_folder("Policy")
        gui.add_markdown(f"[All shipped policies](?{GALLERY})")

    def _add_shortcuts(self) -> None:
        """What `KEYS` tells; viser moves the camera by W, A, S, D, Q, E and the arrows."""
        session, add = self.session, self.controls
        toggle = lambda box: lambda: setattr(box, "value", not box.value)
        add.shortcut("N", "New goal", lambda: session.submit(session.sample_goal))
        add.shortcut("G", "New goal when reached", toggle(self.auto_goal))
        add.shortcut("P", "Pause", toggle(self.pause))
        add.shortcut("R", "Reset", lambda: session.submit(session.reset))
        add.shortcut("X", "Push", lambda: session.submit(self.pointer.push_anywhere))
        add.shortcut("T", "Trajectory", toggle(self.trajectory))
        add.shortcut("C", "Critic map", toggle(self.critic))

    def _add_plot(self) -> None:
        self.server.gui.add_markdown("Distance to the goal and success threshold (m) over time (s):")
        self.plot = self.server.gui.add_uplot(
            (np.zeros(1),) * 3,
            (
                uplot.Series(label="seconds"),
                uplot.Series(label="distance", stroke="#246e5a", width=2),
                uplot.Series(label="threshold", stroke="#e07b39", width=1),
            ),
            scales={"x": uplot.Scale(time=False)},
            legend=uplot.Legend(show=False),
            height=150,
        )

    def _add_choices(self) -> None:
        """Controls that choose another policy, environment, seed or checkpoint."""
        session, choice, add = self.session, self.session.choice, self.controls
        for handle in self._choices:
            add.remove(handle)
        actor = session.sim.actor
        with self.policy_folder:
            self._choices = [
                add.dropdown(
                    "Policy", session.sources, choice.source, lambda value: self.choose(Choice(value))
                ),
                add.dropdown(
                    "Environment",
                    offered_environments(choice.source, actor),
                    actor.env.spec.id,
                    lambda value: self.choose(Choice(choice.source, choice.seed, choice.which, value)),
                ),
            ]
            if actor.policies is not None:
                self._choices += self._seed_and_checkpoint(actor.policies)
            self._choices += height_controls(add, session)

    def _seed_and_checkpoint(self, policies: Policies) -> list[Control]:
        choice, add = self.session.choice, self.controls
        seed = add.dropdown(
            "Seed",
            tuple(map(str, policies.seeds)),
            str(self.session.sim.actor.seed),
            lambda value: self.choose(Choice(choice.source, int(value), choice.which, choice.env)),
        )
        if not Path(choice.source).is_dir():
            return [seed]
        which = add.dropdown(
            "Checkpoint",
            CHECKPOINTS,
            choice.which,
            lambda value: self.choose(
                Choice(choice.source, choice.seed, "best" if value == "best" else "last", choice.env)
            ),
        )
        return [seed, which]

    def choose(self, choice: Choice) -> None:
        """Play something else; from any thread."""
        if choice == self.session.choice:
            return
        self.status.content = loading(choice)
        self.session.submit(lambda: self.session.choose(choice))

    # Drawing.

    def show(self) -> None:
        """Send what has changed, each part at its own rate."""
        if self._shown != self.session.version:
            self._build()
        if self._is_due("scene"):
            self._draw()
        if self._is_due("trajectory"):
            self._draw_trajectory()
        if self._is_due("status"):
            self._update_status()
        self._draw_map()

    def _draw_map(self) -> None:
        """The critic map where it is switched on; its image is made when it first is."""
        sim = self.session.sim
        visible = bool(self.critic.value) and sim.has_critic
        if visible and self._map_image is None:
            self._map_image = shapes.add_floor_image(self.server.scene, sim.env.scene.spec, self.ground)
            self._scene.append(self._map_image)
        if self._map_image is not None:
            if visible and self._is_due("critic"):
                self._map_image.image = shapes.heat(sim.critic_values(), sim.space, MAP_OPACITY)
            self._map_image.visible = visible

    def _is_due(self, part: str) -> bool:
        now = time.monotonic()
        if now < self._due[part]:
            return False
        self._due[part] = now + 1.0 / RATES[part]
        return True

    def _build(self) -> None:
        """Replace the scene by that of the current simulation."""
        self._shown = self.session.version
        sim, scene = self.session.sim, self.server.scene
        spec = sim.env.scene.spec
        with self.server.atomic():
            for handle in self._scene:
                handle.remove()
            built = shapes.build(scene, spec)
            self.links, self.ground, self._line = built.links, built.ground, built.line
            arm = render.is_arm(spec)
            self.height = float(render.goal_markers(spec, sim.goal)[0].pos[2]) if arm else self.ground
            self.pointer.height = self.height
            self._goals = shapes.add_goals(scene, spec, sim.goal, GOAL_OPACITY)
            for part, handle in self._goals:
                handle.on_drag("left")(functools.partial(self.pointer.goal_dragged, part=part))
            for handle in built.robot:
                handle.on_drag("left")(self.pointer.robot_dragged)
            # All points from the beginning: only their places change, and browsers keep the rest.
            fading = shapes.faded(TRAJECTORY_RGB, np.linspace(1.0, 0.0, shapes.PATH))
            self._line_segments = scene.add_line_segments(
                "/trajectory",
                np.zeros((shapes.PATH - 1, 2, 3), np.float32),
                shapes.segments(fading, np.uint8),
                thickness=built.line,
            )
            self._map_image: viser.ImageHandle | None = None
            goals = [handle for _, handle in self._goals]
            self._scene = [*built.handles, *goals, self._line_segments]
        for client in self.server.get_clients().values():
            self._set_camera(client)
        self._add_choices()
        self._draw()
        self._update_status()

    def _connected(self, client: viser.ClientHandle) -> None:
        try:
            if self._shown >= 0:
                self._set_camera(client)
        except Exception as error:
            report(error, client)

    def _set_camera(self, client: viser.ClientHandle) -> None:
        """Show the whole scene in the part of the window that the controls leave free."""
        camera = client.camera
        view = shapes.view(self.session.sim.env.scene.spec, camera.image_width, camera.image_height)
        camera.fov = view.fov
        camera.position, camera.look_at = view.position, view.target

    def _draw(self) -> None:
        sim, shown = self.session.sim, self.session.shown
        with self.server.atomic():
            for k, frame in enumerate(self.links):
                frame.position, frame.wxyz = shown.pos[k], shown.rot[k]
            shapes.place_goals(self._goals, sim.env.scene.spec, sim.goal)

    def _draw_trajectory(self) -> None:
        """The path of the last seconds, the fainter the older."""
        points = np.asarray(self.session.trajectory)
        is_path = bool(self.trajectory.value) and len(points) > 1
        with self.server.atomic():
            self._line_segments.visible = is_path
            if is_path:
                points = shapes.path(points, self.session.trajectory.maxlen or len(points))
                height = np.full(len(points), self.height + self._line)
                self._line_segments.points = shapes.segments(np.column_stack([points, height]), np.float32)

    def _update_status(self) -> None:
        session = self.session
        self.status.content = status(session, bool(self.critic.value))
        if session.history:
            seconds, distances = np.array(session.history).T
            self.plot.data = (seconds, distances, np.full_like(seconds, session.sim.env.task.within))

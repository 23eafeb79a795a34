"""Commands that show policies: `render` (films, paths, maps) and `play` (live)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from homing.bounds import check_values
from homing.cli import interrupts
from homing.cli.arguments import Flag, Options, parse_options
from homing.cli.paths import check_file
from homing.errors import ConfigError, unknown

if TYPE_CHECKING:
    from homing.play.server import Player
    from homing.play.session import Session
    from homing.play.sources import Choice

Shown = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN|POLICY|ENV ...", help_behavior_hint="(required)"),
]
Sources = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN|POLICY|ENV ...]")]
Place = Annotated[str | None, tyro.conf.arg(metavar="X,Y")]
PANEL = (640, 480), (480, 360)  # pixels of one film alone, and of each of several


def render(
    what: Shown,
    out: Path,
    goal: Place = None,
    seed: Annotated[str | None, tyro.conf.arg(metavar="best|all|N,N")] = None,
    which: Literal["last", "best"] = "last",
    paths: Flag = False,
    map: Literal["goals", "states"] | None = None,
    at: Place = None,
    steps: int | None = None,
    episodes: int = 64,
    start_seed: int = 0,
    policy: Literal["random", "zero"] | None = None,
    width: int | None = None,
    height: int | None = None,
    physics: str | None = None,
    env_option: Options = (),
    cpu: Flag = False,
) -> None:
    """Render films of policies side by side, their paths from above, or maps of their critics' values.

    Args:
        what: run folders, policy files, shipped policies, or the id of an environment
        out: a film (.mp4, .webp, .gif) or its last step (.png); figures of --paths and --map are .png, .pdf or .svg
        goal: fixed goal, instead of sampled ones
        seed: seeds whose policies to show: 0,1,2, best or all; the first of each run by default
        which: the last policies of a run or the best
        paths: plot the paths of many episodes over the layout
        map: plot the critic's value, of all goals from a state or of all states for a goal
        at: position of the robot, or of what it carries, in the map of goals; its start by default
        steps: environment steps of a film; by default an episode, or 100 steps of an environment alone
        episodes: number of paths to plot
        start_seed: random seed of starts and goals
        policy: show an environment with random actions or with zero actions
        width: pixels of each film; 640, or 480 where there are several
        height: pixels of each film; 480, or 360 where there are several
        physics: physics pipeline of an environment alone, instead of its default
        env_option: settings of body, task or arena where no policy is shown, for instance task.within=0.3
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing.training.device import choose_device

    if paths and map:
        raise ConfigError("--paths and --map are two figures; ask for one at a time")
    check_values(steps=steps, episodes=episodes, width=width, height=height, start_seed=start_seed)
    _check_out(out, figure=paths or map is not None)
    alone = _environment(what, policy, changed=physics is not None or bool(env_option))
    if alone is None and (physics is not None or env_option):
        raise ConfigError(
            "a policy brings its environment; --physics and --env-option are for an environment alone"
        )
    if alone is not None and (paths or map):
        raise ConfigError(f"{alone} is an environment; --paths and --map show a trained policy")
    choose_device(cpu)
    if paths:
        print(f"wrote {_paths(what, seed, which, episodes, start_seed, goal, out)}")
    elif map is not None:
        print(f"wrote {_map(what, seed, which, map, start_seed, goal, at, out)}")
    else:
        cast = _cast(what, alone, policy, seed, which, physics, env_option)
        print(f"wrote {_film(cast, steps, start_seed, goal, out, width, height)}")


def _check_out(out: Path, figure: bool) -> None:
    check_file("--out", out)
    if figure:
        from homing.viz.plots import check_output
    else:
        from homing.viz.video_files import check_output
    check_output(out)


def _environment(what: Sequence[str], policy: str | None, changed: bool) -> str | None:
    """The id, where an environment alone is asked for; refuses names of nothing.

    The name of an environment that a policy is shipped for means the policy, unless the environment is to
    have something `changed` or an untrained policy.
    """
    from homing.envs.registry import env_ids, is_env
    from homing.policies import shipped_names
    from homing.policies.store import locate

    if not what:
        raise ConfigError("name what to show: a run's folder, a policy or an environment")
    known = [name for name in what if is_env(name) and not Path(name).exists()]
    if known and (policy is not None or changed or known[0] not in shipped_names()):
        if len(what) > 1:
            raise ConfigError(f"{known[0]} is an environment without a policy; it is shown alone")
        return known[0]
    for name in what:
        plain = len(Path(name).parts) == 1 and not Path(name).suffix and not Path(name).exists()
        if plain and name not in shipped_names():
            raise unknown("environment or shipped policy", name, (*env_ids(), *shipped_names()))
        locate(name)
    if policy is not None:
        raise ConfigError(f"--policy {policy} is for an environment alone, and {what[0]} is none")
    return None


def _cast(
    what: Sequence[str],
    alone: str | None,
    policy: str | None,
    seed: str | None,
    which: Any,
    physics: str | None,
    option: tuple[str, ...],
) -> list[Any]:
    from homing.viz import video

    if alone is None:
        return video.actors(what, seed, which)
    return [video.environment_actor(alone, policy or "random", physics, parse_options(option))]


def _film(
    cast: list[Any], steps: Any, start_seed: int, goal: Any, out: Path, width: Any, height: Any
) -> Path:
    from homing.viz import video

    usual = PANEL[len(cast) > 1]
    panels = video.recorded(cast, steps, start_seed, goal)
    return video.write(panels, out, width or usual[0], height or usual[1])


def _paths(
    what: Sequence[str], seed: Any, which: Any, episodes: int, start_seed: int, goal: Any, out: Path
) -> Path:
    from homing.viz import critic_map, plots, video

    cast = video.actors(what, seed, which, num_envs=episodes)
    aims = video.parsed_goals(cast, goal)
    panels = [critic_map.walk(actor, start_seed, aims[id(actor.env)]) for actor in cast]
    return plots.save_paths(panels, out)


def _map(
    what: Sequence[str], seed: Any, which: Any, over: Any, start_seed: int, goal: Any, at: Any, out: Path
) -> Path:
    from homing.viz import critic_map, plots, video

    if over == "states" and at is not None:
        raise ConfigError("--at places the robot in a map of goals; a map of states has it everywhere")
    if over == "goals" and goal is not None:
        raise ConfigError("--goal is for a map of states; a map of goals has all of them")
    cast = video.actors(what, seed, which)
    panels = [critic_map.critic_map(actor, over, start_seed, goal, at) for actor in cast]
    return plots.save_maps(panels, out)


def play(
    what: Sources = (),
    seed: int | None = None,
    which: Literal["last", "best"] = "last",
    env: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_: Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(name="open")] = False,
) -> None:
    """A page on this machine where you set goals and watch the policy reach them, live.

    Without a name it opens with a gallery of the shipped policies. A run that is still being trained is followed:
    its newest policy acts from the next goal on.

    Args:
        what: run folders, policy files, shipped policies or environments; the first is loaded, the others
            can be chosen on the page, as can all shipped policies
        seed: seed of the policy; the first of the run by default
        which: the last policy of a run or its best
        env: act in this environment instead of the policy's own
        host: name or address of this machine to serve on; the default is reachable from this machine only
        port: port of the page; by default 8080, or the next free one
        open_: open the page in the browser
    """
    from homing.play.server import check_host
    from homing.play.sources import Choice, check_source
    from homing.policies import shipped_names
    from homing.training.device import choose_device

    check_values(seed=seed)
    if not what and (seed is not None or env is not None or which != "last"):
        raise ConfigError("--seed, --which and --env are those of one policy: name it, or leave them out")
    if not what and not shipped_names():
        raise ConfigError("name what to play: a run's folder, a policy or an environment")
    for source in what:
        check_source(source)
    _check_env(env)
    check_host(host)
    choose_device(cpu=True)  # a single environment gains nothing from a GPU
    choice = Choice(what[0], seed, which, env) if what else None
    _serve(choice, (*what, *shipped_names()), host, port, open_)


def _check_env(env: str | None) -> None:
    from homing.envs.registry import resolve

    if env is not None:
        resolve(env)


def _serve(choice: Choice | None, sources: Sequence[str], host: str, port: int | None, show: bool) -> None:
    """Serve the page at once, and load meanwhile; what cannot be loaded is refused before."""
    import webbrowser

    from homing.play.server import Player, free_port
    from homing.play.sources import make_actor

    actor = None if choice is None else make_actor(choice)
    # Only now: another program may take a port while the policy is read.
    port, message = free_port(port, host)
    if message:
        print(message)
    label = "Homing" if choice is None else f"{Path(choice.source).name} · Homing"
    player = Player(
        None, port, label, host, sources, has_gallery=choice is None, is_ending=interrupts.received
    )
    try:
        print(_address_line(player), flush=True)
        if choice is not None:
            player.open(choice, actor)
            print(
                f"loading {choice.env or choice.source}; the first time, it has to be compiled …", flush=True
            )
        if show:
            webbrowser.open(player.address)
        player.run(partial(_say_ready, since_start=choice is not None))
    except KeyboardInterrupt:
        print("ended")
    finally:
        player.stop()


def _address_line(player: Player) -> str:
    if player.is_local:
        return f"open {player.address} (only this machine can); Ctrl-C ends"
    return (
        f"open {player.address}; Ctrl-C ends\n"
        f"anyone who has this address and reaches {player.host} can use the page; it is not encrypted"
    )


def _say_ready(session: Session, since_start: bool) -> None:
    """What is loaded, and for what was named in the command how long that took."""
    from homing.compile.programs import process_seconds

    sim = session.sim
    when = (
        f"{process_seconds():.1f} s after the start of the process" if since_start else session.choice.source
    )
    print(
        f"ready: {when}; a step of {sim.dt:g} s takes "
        f"{1e3 * sim.step_seconds:.2f} ms: {sim.dt / sim.step_seconds:.0f} × real time on this machine",
        flush=True,
    )

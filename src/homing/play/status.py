"""What the page says about the session, as markdown."""

from __future__ import annotations

from homing.play.session import Session
from homing.play.sources import Choice

MARKDOWN = str.maketrans(
    {c: f"\\{c}" for c in "\\`*_{}[]()#+-.!|~$:"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def plain(text: str) -> str:
    """Text that markdown shows as it is: names of files and errors may hold anything."""
    return " ".join(text.split()).translate(MARKDOWN)


def loading(choice: Choice) -> str:
    return f"### Loading {plain(choice.env or choice.source)} …\nThe first time, it has to be compiled."


def status(session: Session, wants_critic: bool) -> str:
    """The session's state; `wants_critic` if the critic's map is asked for."""
    sim = session.sim
    lines = [
        f"### {plain(sim.env.spec.id)}\n{_policy(session)}",
        f"{_distance(session)}",
        f"goals reached **{session.goals_reached}**" + (f" · falls {session.falls}" if session.falls else ""),
        f"{_rate(session)} (maximum {sim.dt / sim.step_seconds:.0f} ×)",
    ]
    if wants_critic and not sim.has_critic:
        lines.append("This policy has no critic.")
    if session.message:
        lines.append(f"⚠ {plain(session.message)}")
    return "\n\n".join(lines)


def _policy(session: Session) -> str:
    """The policy, and for a run that is followed the step it is from."""
    label = plain(session.sim.actor.label)
    if session.policy_step is not None:
        label += f" · step {session.policy_step:,}"
    return label + (" · a newer one acts from the next goal on" if session.newer_waits else "")


def _distance(session: Session) -> str:
    if session.has_fallen:
        return "**It fell** and gets up …"
    reached = " · **reached**" if session.shown.reached else ""
    return f"distance **{session.shown.distance:.2f} m**{reached}"


def _rate(session: Session) -> str:
    return "paused" if session.paused else f"{session.real_time_factor or 0:.1f} × real time"

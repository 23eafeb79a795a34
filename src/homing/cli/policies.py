"""Commands on trained policies: `export`, `policies`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from homing.bounds import check_values
from homing.cli import paths
from homing.cli.arguments import Flag, Json
from homing.cli.evaluate import check_chain
from homing.cli.tables import add_names, console

RATES = (
    "success: of single goals. On the page: of goals reached there in chains, where a fallen robot gets up. "
    "In chains: stricter, a fall ends a chain."
)


def export(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: Path,
    seed: Annotated[str, tyro.conf.arg(metavar="best|all|N")] = "best",
    which: Literal["last", "best"] = "last",
    episodes: int | None = None,
    float16: Flag = False,
    chain: int | None = None,
    chain_steps: int | None = None,
    hf: Flag = False,
    license: str = "apache-2.0",
    cpu: Flag = False,
) -> None:
    """Write trained policies, with a model card, to one small file; or one of them as an ONNX model.

    Args:
        run: folder of a run, a policy file, or the name of a shipped policy
        out: file to write; its name ends in .safetensors or .onnx. With --hf, a new folder
        seed: the most successful seed, all of them, or one by its number
        which: the last policies or those of the best evaluation
        episodes: evaluate on this many fresh episodes; by default the card quotes the run's own evaluation
        float16: store numbers in 16 bits, which halves the file
        chain: evaluate along chains of this many goals as well, without a reset between them
        chain_steps: steps for each goal of a chain; the time limit of an episode by default
        hf: write a folder with the policy and a model card in Hugging Face's form, ready to be uploaded
        license: identifier of the license that the model card names
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing import api
    from homing.policies.card import SCORE
    from homing.policies.export import ONNX
    from homing.policies.hugging_face import check_folder, policy_file
    from homing.policies.store import check_file, locate, read_policies
    from homing.training.device import choose_device

    check_values(episodes=episodes)
    check_chain(chain, chain_steps)
    if hf:
        check_folder(paths.check_folder("--out", out), license)
    elif paths.check_file("--out", out).suffix != ONNX:
        check_file(out)
    locate(run)
    choose_device(cpu)
    options: dict[str, Any] = {"seed": seed, "which": which, "episodes": episodes, "half": float16}
    options |= {"chain": chain, "chain_steps": chain_steps, "hf": hf, "license": license}
    path = api.export(run, out, **options)
    if path.suffix == ONNX:
        print(f"wrote {path} ({path.stat().st_size / 1024:,.0f} KiB): state, goal -> action")
        return
    if hf:
        print(f"wrote {path}: {', '.join(sorted(file.name for file in path.iterdir()))}")
        path = policy_file(path)
    written = read_policies(path)
    scores = "; ".join(
        f"seed {row['seed']}" + (f" {SCORE} {row[SCORE]:.3g}" if SCORE in row else "")
        for row in written.card["scores"]
    )
    print(f"wrote {path} ({path.stat().st_size / 1024:,.0f} KiB): {scores}")
    print(f"see it: homing play {shlex.quote(str(path))}")


def policies(
    policy: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[POLICY]")] = None,
    json_: Json = False,
) -> None:
    """List the policies that ship with Homing, or show the model card of one.

    Args:
        policy: a shipped policy or a policy file, to show its card
        json_: print JSON, with the whole cards, instead of a table
    """
    from homing.policies import find_policies, shipped, shipped_names
    from homing.policies.card import SCORE
    from homing.runs.progress import human_count

    if policy is not None:
        _show_card(find_policies(policy), json_)
        return
    found = {name: find_policies(name) for name in shipped_names()}
    if json_:
        print(json.dumps({name: p.card for name, p in found.items()}, indent=1))
        return
    table = Table(title=f"{len(found)} shipped policies: homing play NAME", caption=RATES)
    add_names(table, "name", found)
    add_names(table, "environment", (p.choice.env for p in found.values()))
    table.add_column("agent")
    for heading in ("steps", "seeds", "success", "on the page", "in chains", "size"):
        table.add_column(heading, justify="right")
    for name, p in found.items():
        size = f"{shipped(name).stat().st_size / 1024:,.0f} KiB"
        steps = human_count(p.card["step"]) if "step" in p.card else ""
        chains = (p.card.get(part, {}).get("scores", ()) for part in ("page", "chain"))
        rates = _mean(p.card["scores"], SCORE), *(_mean(rows, "reached") for rows in chains)
        table.add_row(name, p.choice.env, p.agent_name, steps, str(len(p.seeds)), *rates, size)
    console().print(table)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The mean of a rate over seeds, empty where it was not measured."""
    scores = [row[name] for row in rows if name in row]
    return f"{sum(scores) / len(scores):.1%}" if scores else ""


def _show_card(policies: Any, as_json: bool) -> None:
    from homing.policies import shipped, shipped_names
    from homing.policies.card import exported
    from homing.policies.card_page import markdown

    if as_json:
        print(json.dumps(dict(policies.card), indent=1))
        return
    path = shipped(policies.source) if policies.source in shipped_names() else Path(policies.source)
    size = path.stat().st_size if path.is_file() else 0
    card = policies.card if "chosen" in policies.card else exported(policies.card, policies.seeds, "all")
    Console().print(Markdown(markdown(path.stem, card, size)))

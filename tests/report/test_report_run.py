"""A report on a run that was really trained says what the run itself says."""

import json

import pytest
from run_helpers import no_key_check, probe_envs, run, shared_programs  # noqa: F401

from homing.report.build import write_report
from homing.report.content import make_content
from homing.report.reading import find_runs, read_runs


@pytest.mark.usefixtures("probe_envs", "shared_programs")
def test_a_real_run_is_reported_as_it_was(tmp_path):
    run(tmp_path / "run")
    written = write_report([tmp_path], tmp_path / "report.html", csv=tmp_path / "all.csv")
    assert written.runs == 1 and not written.problems
    records, problems = read_runs(find_runs([tmp_path / "run"]))
    page = make_content(records, problems).page
    (group,) = page["groups"]
    assert (page["methods"], page["tasks"], group["seeds"]) == (["crl"], ["walk"], 2)
    last = json.loads((tmp_path / "run" / "summary.json").read_text())["last"]
    for name in ("eval/success_any", "eval/time_near_goal", "eval/final_distance"):
        shown = group["final"][name]
        assert shown["value"] == pytest.approx(last[name]["iqm"], rel=1e-4)
        assert shown["low"] == pytest.approx(last[name]["low"], rel=1e-4, abs=1e-6)
    assert "train/critic_loss" in page["metrics"] and page["machines"][0]["rate"] > 0
    assert page["machines"][0]["jax"] and ("agent", "crl") in page["settings"]["shared"]

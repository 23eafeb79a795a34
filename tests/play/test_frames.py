"""What a frame costs beside drawing, in a real browser: little of the 33 ms that 30 frames a second leave."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAME_MS = 1000 / 30
SECONDS = 5.0


@pytest.fixture(scope="module")
def bench():
    import bench_play

    return bench_play


@pytest.fixture(scope="module")
def browser(bench):
    if not bench.CHROMIUM.exists():
        pytest.skip("no Chromium on this machine")
    with bench.chromium() as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("name", ["point_u_maze", "ant_big_maze"])
def test_the_page_of_play_works_a_quarter_of_a_frame_at_most(bench, browser, name):
    found = bench.played(browser, name, SECONDS)
    assert found["frames"] > SECONDS, "it is drawn"
    assert 0 < found["main_thread_ms"] < FRAME_MS / 4, found
    assert 0 < found["server_ms"] < FRAME_MS / 4, found
    assert 0 < found["sent_kB_per_second"] < 500, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["point_u_maze", "ant_big_maze"])
def test_a_shared_page_works_a_quarter_of_a_frame_at_most(bench, browser, name):
    found = bench.shared(browser, ROOT / "docs" / "live" / f"{name}.html", SECONDS)
    assert found["frames"] > SECONDS, "it is drawn"
    assert 0 < found["main_thread_ms"] < FRAME_MS / 4, found

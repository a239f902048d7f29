"""A run that goes on: read while it does, in the terminal and as a page; nothing of it is obeyed."""

import http.client
import json
import shutil
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

import sgld
from sgld.errors import RunError
from sgld.interfaces.cli import app
from sgld.interfaces.cli.watch import Page
from sgld.interfaces.report.live import as_lines, as_page, read_live
from sgld.results.run_directory import RunDirectory

EVIL = "<script>alert(1)</script>"


def called(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of 3000 draws, and its directory as it stood at its last checkpoint."""
    folder = tmp_path_factory.mktemp("live")
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    rows = "\n".join(f"{a:.6f},{a + e:.6f}" for a, e in zip(x, rng.normal(size=500), strict=True))
    (folder / "t.csv").write_text(f'"{EVIL}",y\n{rows}\n')
    real = RunDirectory.write_checkpoint

    def write(self, head, arrays):
        real(self, head, arrays)
        shutil.rmtree(folder / "live", ignore_errors=True)
        shutil.copytree(self.path, folder / "live")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "write_checkpoint", write)
        sgld.fit(
            folder / "t.csv", f"y ~ `{EVIL}`", out=folder / "run", progress=False,
            checkpoint_every=1e-9, step_size=2e-4, num_draws=3000, batch_size=100,
        )  # fmt: skip
    return folder


def test_a_run_is_read_while_it_goes_on(folder):
    live, whole = read_live(folder / "live"), sgld.load(folder / "run")
    assert not live.finished and 1000 < live.count <= 3000 + 512
    count = min(live.count, 3000)
    np.testing.assert_allclose(live.draws[:, :count], whole.flat()[0][:, :count], rtol=1e-5, atol=1e-6)  # fmt: skip
    assert live.names == whole.names and live.wanted >= 3000
    assert live.step > 0 and live.left is not None
    said = as_lines(live)
    assert "of 4 chains" in said and ("mixed so far" in said or "not mixed yet" in said)
    assert read_live(folder / "run").finished


def test_summary_of_a_run_that_a_process_is_at_work_on(folder):
    assert called("summary", folder / "live").exit_code == 2  # killed: nobody is
    with RunDirectory(folder / "live"):
        found = called("summary", folder / "live")
        assert found.exit_code == 0 and "of 4 chains" in found.output
        told = json.loads(called("summary", folder / "live", "--json").output)
        assert told["verdict"] == "unknown" and "the run is not finished" in told["reasons"]
        assert called("summary", folder / "live", "--strict").exit_code == 3


def test_watch_says_once_where_it_is_no_terminal(folder, tmp_path):
    assert "least ESS" in called("watch", folder / "live").output
    assert "finished" in called("watch", folder / "run", "--once").output
    wrong = called("watch", tmp_path)
    assert wrong.exit_code == 2 and "not a run directory" in wrong.output


@pytest.fixture
def server(folder):
    with Page(folder / "live", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def asked(server, path="/", **headers):
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    line.request("GET", path, headers=headers)
    answer = line.getresponse()
    return answer, answer.read().decode()


def test_the_page_answers_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    answer, page = asked(server)
    assert answer.status == 200 and "<polyline" in page and 'http-equiv="refresh"' in page
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert asked(server, Host="evil.example")[0].status == 403
    assert asked(server, Host=f"localhost:{server.server_port}")[0].status == 200
    assert asked(server, **{"Sec-Fetch-Site": "cross-site"})[0].status == 403
    assert asked(server, "/run.json")[0].status == asked(server, "/../run.json")[0].status == 404


def test_the_page_is_drawn_in_a_browser_and_asked_for_again(server, browser, figures):
    page, asked_for, wrong = browser.new_page(), [], []
    page.on("request", lambda request: asked_for.append(request.url))
    page.on("console", lambda message: wrong.append(message.text))
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    boxes, clipped = figures(page)
    assert len(boxes) and np.min(boxes) > 5 and clipped == []
    assert EVIL in page.locator("body").inner_text()  # as a name, of a column
    page.wait_for_event("framenavigated", timeout=30_000)
    assert set(asked_for) == {page.url} and len(asked_for) >= 2 and wrong == []


def test_a_page_that_cannot_be_made_says_so_and_the_server_goes_on(server, monkeypatch):
    def broken(self):
        raise errors[-1]

    errors = []
    for error, said in ((KeyError("<b>"), "KeyError"), (RunError("it is gone."), "it is gone.")):
        errors.append(error)
        with monkeypatch.context() as patch:
            patch.setattr("sgld.interfaces.report.live.Reader.read", broken)
            server.shown._until = 0.0
            answer, page = asked(server)
            assert answer.status == 500 and said in page and "<b>" not in page
            assert 'http-equiv="refresh"' in page  # the run may be whole again
        server.shown._until = 0.0
        assert asked(server)[0].status == 200


def test_what_a_stranger_named_is_only_shown(server, folder):
    _, page = asked(server)
    assert EVIL not in page and "&lt;script&gt;" in page
    assert EVIL not in as_page(read_live(folder / "live"), EVIL)


@pytest.mark.parametrize("what", ["chunks", "again", "model"])
def test_a_forged_directory_is_damage(folder, tmp_path, what, monkeypatch):
    monkeypatch.setattr("sgld.interfaces.report.live.MAX_REREADS", 0)
    shutil.copytree(folder / "live", tmp_path / "forged")
    directory = RunDirectory(tmp_path / "forged")
    if what == "chunks":
        head, arrays = directory.read_checkpoint()
        directory.write_checkpoint({**head, "chunks": [["../../x", 4]]}, arrays)
    else:
        directory.add(**{what: 7})
    with pytest.raises(RunError):
        read_live(tmp_path / "forged")

"""`infscale parse`: what it prints for pages in files and at URLs, and how each bad input is said."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infscale.cli import run

PAGES = Path(__file__).parent / "data" / "pages"
EXPECTED = json.loads((PAGES / "expected.json").read_text(encoding="utf-8"))
KEYS = [
    "source",
    "engine",
    "state",
    "running",
    "waiting",
    "inflight",
    "kv",
    "prompt_tokens",
    "generation_tokens",
    "model",
    "warnings",
    "error",
]
VLLM = 'vllm:num_requests_running{model_name="m"} 2\nvllm:num_requests_waiting{model_name="m"} 3\n'


class Answers:
    """Runs command lines in this process and keeps what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        status = run(["parse", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        return status, out, err

    def rows(self, *arguments: object) -> list[dict]:
        """What `--format json` printed."""
        rows = json.loads(self("--format", "json", *arguments)[1])
        assert isinstance(rows, list)
        return rows


@pytest.fixture
def parse(capsys) -> Answers:
    """`infscale parse` with arguments."""
    return Answers(capsys)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Writes a page into the present folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes = VLLM, name: str = "page.prom") -> str:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


class Engine(ThreadingHTTPServer):
    """A web server that answers each GET with the next of `pages` (the last one again and again)."""

    daemon_threads = False  # so that closing waits for the last answer

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: list[str] = [VLLM]
        self.status = 200
        self.endless = False
        self.length: int | None = None
        self.authorization: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/metrics"


class Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        """One page; an endless one until the reader hangs up."""
        engine = self.server
        body = (engine.pages.pop(0) if len(engine.pages) > 1 else engine.pages[0]).encode()
        engine.authorization.append(self.headers.get("Authorization"))
        self.send_response(engine.status)
        if not engine.endless:
            self.send_header("Content-Length", str(engine.length or len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
            while engine.endless or engine.length:
                self.wfile.write(b"# more of it\n" * 5000)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A running engine's metrics page."""
    with Engine() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_every_page_in_one_call_reads_as_expected(parse):
    """One call over all pages gives engine, state and numbers that are known to be right for each."""
    names = sorted(EXPECTED)

    rows = parse.rows(*(PAGES / name for name in names))

    assert [Path(row["source"]).name for row in rows] == names
    for row in rows:
        wanted = EXPECTED[Path(row["source"]).name]
        assert list(row) == KEYS
        for key in {"engine", "state", "running", "waiting", "inflight", "kv"} & wanted.keys():
            right = pytest.approx(wanted[key]) if isinstance(wanted[key], float) else wanted[key]
            assert row[key] == right, (row["source"], key)
        assert (row["error"] is None) == (row["state"] in ("ok", "fresh", "asleep"))


def test_json_row_of_a_page(parse, page):
    """A row has every key; numbers that are whole are written whole, and null where the engine does not tell."""
    text = VLLM + 'vllm:prompt_tokens_total{model_name="m"} 40.0\nvllm:kv_cache_usage_perc{model_name="m"} 0.25\n'

    status, out, err = parse("--format", "json", page(text))

    assert (status, err) == (0, "")
    assert json.loads(out) == [
        {
            "source": "page.prom",
            "engine": "vllm",
            "state": "ok",
            "running": 2,
            "waiting": 3,
            "inflight": 5,
            "kv": 0.25,
            "prompt_tokens": 40,
            "generation_tokens": None,
            "model": "m",
            "warnings": [],
            "error": None,
        }
    ]
    assert "40.0" not in out


def test_table_row_of_a_page(parse, page):
    """The table has aligned columns and - for what is unknown."""
    page(VLLM, "b-longer-name.prom")

    status, out, err = parse(page(), "b-longer-name.prom")

    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "SOURCE              ENGINE  STATE  RUNNING  WAITING  INFLIGHT  KV  PROMPT  GENERATED  MODEL",
        "page.prom           vllm    ok           2        3         5   -       -          -  m",
        "b-longer-name.prom  vllm    ok           2        3         5   -       -          -  m",
    ]


def test_table_shows_warnings_and_errors_below_their_row(parse, page):
    """A warning or an error stands in a line of its own below the row; the error on standard error too."""
    status, out, err = parse(PAGES / "ray-vllm-node.reconstructed.prom", page("<html></html>"))

    lines = out.splitlines()
    assert lines[2].startswith("  warning: ")
    assert "ReplicaId" in lines[2]
    assert lines[3].split()[:3] == ["page.prom", "-", "not_an_engine"]
    assert lines[4].startswith("  error: an HTML page")
    assert err.startswith("infscale: page.prom: an HTML page")
    assert len(err.splitlines()) == status == 1


def test_several_models_are_one_row(parse, page):
    """A page with two models is their sum, and names both."""
    row = parse.rows(page(VLLM + VLLM.replace('"m"', '"n"')))[0]

    assert (row["running"], row["waiting"], row["inflight"], row["model"]) == (4, 6, 10, "m, n")


def test_name_that_would_move_the_cursor_is_shown_harmless(parse, page):
    """Control characters of a label do not reach the terminal."""
    out = parse(page(VLLM.replace('"m"', '"a\x1b[2J\\nb"')))[1]

    assert "\x1b" not in out
    assert out.splitlines()[1].endswith("a\\x1b[2J\\nb")


def test_selector_counts_only_its_series(parse):
    """--engine.select (or --select) reads one replica of a Ray node's page, and the warning is gone."""
    path = PAGES / "ray-vllm-node.reconstructed.prom"

    for flag in ("--engine.select", "--select"):
        row = parse.rows(flag, "ReplicaId=r2", path)[0]
        assert (row["running"], row["waiting"], row["warnings"]) == (5, 2, [])


def test_gzip_is_unpacked(parse, page):
    """A packed page reads like a plain one, whatever its name and however many members it has."""
    packed = gzip.compress(VLLM[:50].encode()) + gzip.compress(VLLM[50:].encode())

    assert parse.rows(page(packed, "page.prom.gz"))[0]["inflight"] == 5


def test_standard_input(parse, monkeypatch):
    """`-` is standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(VLLM.encode())))

    row = parse.rows("-")[0]

    assert (row["source"], row["inflight"]) == ("-", 5)


def test_broken_line_that_counts_is_an_error_with_its_line(parse, page):
    """A counted line that breaks the format is told with file, line and text, and gives no numbers."""
    status, out, err = parse("--format", "json", page("# a page\n" + VLLM.replace("} 3", "} three")))

    row = json.loads(out)[0]
    assert status == 1
    assert row["error"].startswith("page.prom:3: ")
    assert "three" in row["error"]
    assert (row["engine"], row["state"], row["inflight"]) == ("vllm", "unreachable", None)
    assert err == f"infscale: {row['error']}\n"


def test_broken_line_elsewhere_counts_with_strict_alone(parse, page):
    """Other lines are looked at only with --strict; then the first broken one is the error."""
    path = page(VLLM + "http_requests_total 1 2 3 4\n{{{\n")

    assert parse(path)[0] == 0
    status, out, err = parse("--strict", "--format", "json", path)
    row = json.loads(out)[0]

    assert status == 1
    assert row["error"].startswith("page.prom:3: ")
    assert (row["engine"], row["state"], row["running"]) == ("vllm", "unreachable", None)
    assert err.count("\n") == 1


def test_strict_says_the_first_broken_line(parse, page):
    """With --strict the first broken line is told, not the one that counts further down."""
    path = page("x 1 2 3 4\n" + VLLM.replace("} 3", "} three"))

    assert parse.rows("--strict", path)[0]["error"].startswith("page.prom:1: ")
    assert parse.rows(path)[0]["error"].startswith("page.prom:3: ")


@pytest.mark.parametrize(
    ("content", "state", "said"),
    [
        (b"\x7fELF\x02\x01\x01\x00\x00", "not_an_engine", "a binary file, expected a metrics page in text"),
        (b"caf\xe9 1\n", "not_an_engine", "a binary file, expected a metrics page in text"),
        (b"", "not_an_engine", "an empty page: "),
        (b"<!DOCTYPE html><html></html>", "not_an_engine", "an HTML page: "),
        (b'{"status": "ok"}', "not_an_engine", "a JSON document: "),
        (b"x" * (9 << 20), "unreachable", "larger than 8 MiB, not a metrics page"),
        (gzip.compress(b"\n" * (9 << 20), mtime=0), "unreachable", "larger than 8 MiB, not a metrics page"),
        (gzip.compress(VLLM.encode(), mtime=0)[:-12], "unreachable", "damaged gzip data: cut off"),
        (b"\x1f\x8b\x08\x00rubbish, not gzip", "unreachable", "damaged gzip data: "),
    ],
)
def test_file_that_is_no_page(parse, page, content, state, said):
    """A file that cannot be a metrics page is a row with the reason, a line on standard error, and exit 1."""
    status, out, err = parse("--format", "json", page(content))

    row = json.loads(out)[0]
    assert status == 1
    assert row["state"] == state
    assert row["error"].startswith(said)
    assert err == f"infscale: page.prom: {row['error']}\n"


def test_missing_file_and_directory_do_not_stop_the_others(parse, page, tmp_path):
    """What cannot be opened is a row of its own; the rest are read."""
    status, out, err = parse("--format", "json", "none.prom", tmp_path, page())

    rows = json.loads(out)
    assert status == 1
    assert [row["error"] for row in rows] == ["no such file", "a directory, expected a file", None]
    assert err.splitlines() == [
        "infscale: none.prom: no such file",
        f"infscale: {tmp_path}: a directory, expected a file",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing argument 'FILE|URL...'"),
        (["--frobnicate", "x"], "no such option '--frobnicate'"),
        (["--engine", "vlm", "x"], "unknown engine 'vlm'; known are aphrodite, dynamo, llama.cpp, "),
        (["--format", "xml", "x"], "invalid value for '--format'"),
        (["localhost:8000/metrics"], "'localhost:8000/metrics': no such file, and no URL without its scheme: expected"),
        (
            ["127.0.0.1:8000"],
            "'127.0.0.1:8000': no such file, and no URL without its scheme: expected http://127.0.0.1",
        ),
        (["[::1]:8000/metrics"], "'[::1]:8000/metrics': no such file, and no URL without its scheme"),
        (["http:localhost"], "URL 'http:localhost' has no scheme: expected http:// or https://"),
        (["ftp://host/x"], "URL 'ftp://host/x' has a scheme that cannot be read: expected http:// or https://"),
        (["http://"], "URL 'http://' has no host"),
        (["http://host:99999/"], "URL 'http://host:99999/' has a port out of range"),
        (["http://u:secret@host/"], "URL 'http://***@host/' holds a user name or password"),
        (["--engine.select", "r2", "x"], "--engine.select: expected LABEL=VALUE, as ReplicaId=r2, got 'r2'"),
        (["--engine.timeout", "0", "x"], "invalid value for '--engine.timeout'"),
        (["--interval", "-1", "x"], "invalid value for '--interval'"),
        (["--engine.token-file", "none", "http://127.0.0.1:1/"], "token file none: No such file or directory"),
        (["--engine.ca-file", "none", "https://127.0.0.1:1/"], "CA file none: No such file or directory"),
        (["--config.file", "none.yaml", "x"], "none.yaml: cannot be read: No such file or directory"),
    ],
)
def test_bad_usage_is_one_line_and_2(parse, page, arguments, said):
    """Bad usage reads nothing: exit 2, nothing on standard output, one line on standard error."""
    page()

    status, out, err = parse(*arguments)

    assert (status, out) == (2, "")
    assert err.startswith(f"infscale: {said}")
    assert err.count("\n") == 1
    assert "secret" not in err


def test_file_named_like_an_address_is_read(parse, page):
    """A file called like host and port is a file."""
    assert parse.rows(page(name="localhost:8000"))[0]["inflight"] == 5


def test_profile_and_flags_from_a_configuration_file(parse, page):
    """--config.file brings profiles and flags, those of the sidecar too; the command line wins over it."""
    page("mine_run 1\nmine_wait 2\n")
    config = page(
        "engine: mine\nformat: json\nweb.listen-address: :10047\n"
        "profiles: [{name: mine, prefix: mine, running: run, waiting: wait}]\n",
        "infscale.yaml",
    )

    status, out, _ = parse("--config.file", config, "page.prom")
    assert (status, json.loads(out)[0]["engine"], json.loads(out)[0]["inflight"]) == (0, "mine", 3)
    assert parse("--config.file", config, "--engine", "vllm", "page.prom")[0] == 1


def test_own_profile_is_found_from_the_page(parse, page):
    """Without --engine a page is told by its gauges, those of the file's profiles first."""
    page("profiles: [{name: mine, prefix: mine, running: run, waiting: wait}]", "infscale.yaml")

    row = parse.rows("--config.file", "infscale.yaml", page("mine_run 1\nmine_wait 2\n"))[0]

    assert (row["engine"], row["inflight"]) == ("mine", 3)


def test_url_is_read_with_the_token(parse, page, engine):
    """A URL is fetched once, with the token of the file."""
    token = page("s3cret\n", "token")

    row = parse.rows("--engine.token-file", token, engine.url)[0]

    assert (row["source"], row["inflight"]) == (engine.url, 5)
    assert engine.authorization == ["Bearer s3cret"]


@pytest.mark.parametrize(
    ("status", "state", "said"),
    [
        (404, "misconfigured", "HTTP 404"),
        (401, "misconfigured", "--engine.token-file"),
        (500, "unreachable", "HTTP 500"),
    ],
)
def test_url_that_answers_otherwise(parse, engine, status, state, said):
    """An HTTP status other than 200 is a state with what to do about it, with --strict too."""
    engine.status = status

    code, out, err = parse("--strict", "--format", "json", engine.url)

    row = json.loads(out)[0]
    assert (code, row["state"]) == (1, state)
    assert said in row["error"]
    assert err.count("\n") == 1


def test_url_where_nothing_listens(parse, engine):
    """A refused connection is a row with the reason."""
    engine.server_close()

    code, out, err = parse("--format", "json", engine.url)

    row = json.loads(out)[0]
    assert (code, row["state"], row["inflight"]) == (1, "unreachable", None)
    assert engine.url in err


@pytest.mark.parametrize("length", [None, 50_000_000])
def test_url_that_sends_too_much(parse, engine, length):
    """A page of 50 MB, and one that never ends, are given up at the bound."""
    engine.length, engine.endless = length, length is None

    code, out, err = parse("--engine.timeout", "30", "--format", "json", engine.url)

    assert (code, json.loads(out)[0]["state"]) == (1, "unreachable")
    assert "8" in json.loads(out)[0]["error"]
    assert err.count("\n") == 1


def test_strict_reads_a_urls_page(parse, engine):
    """--strict names the URL and the line."""
    engine.pages = [VLLM + "{{{\n"]

    assert parse.rows("--strict", engine.url)[0]["error"].startswith(f"{engine.url}:3: ")


def test_interval_adds_tokens_and_cpu(parse, page, engine):
    """--interval reads a URL twice and gives tokens per second and CPU; a file has neither."""
    counters = 'vllm:prompt_tokens_total{{model_name="m"}} {0}\nvllm:generation_tokens_total{{model_name="m"}} {0}\n'
    cpu = "process_cpu_seconds_total {}\n"
    engine.pages = [VLLM + counters.format(100) + cpu.format(5), VLLM + counters.format(10_100) + cpu.format(6)]

    url, file = parse.rows("--interval", "0.2", engine.url, page())

    assert list(url) == list(file) == [*KEYS, "tokens_per_second", "cpu"]
    assert 20_000 / 20 < url["tokens_per_second"] <= 20_000 / 0.2
    assert url["tokens_per_second"] == pytest.approx(20_000 * url["cpu"], rel=0.01)
    assert (file["tokens_per_second"], file["cpu"], file["inflight"]) == (None, None, 5)


def test_interval_over_a_restart_has_no_rates(parse, engine):
    """A counter that fell is another process's: no rate is made up."""
    counter = 'vllm:generation_tokens_total{{model_name="m"}} {}\n'
    engine.pages = [VLLM + counter.format(100), VLLM + counter.format(7)]

    row = parse.rows("--interval", "0.01", engine.url)[0]

    assert (row["state"], row["generation_tokens"], row["tokens_per_second"]) == ("ok", 7, None)


def test_interval_in_the_table(parse, engine):
    """The table shows the two columns with --interval."""
    out = parse("--interval", "0.01", engine.url)[1]

    assert out.splitlines()[0].split()[-3:] == ["TOKENS/S", "CPU", "MODEL"]


def test_gauges_that_vanish_between_two_reads_are_not_fresh(parse, engine):
    """A second page without the gauges of the first shows no numbers."""
    engine.pages = [VLLM, 'vllm:lora_requests_info{max_lora="0"} 0\n']

    row = parse.rows("--interval", "0.01", engine.url)[0]

    assert (row["state"], row["inflight"]) == ("misconfigured", None)
    assert "gone" in row["error"]


@pytest.mark.parametrize(
    ("name", "status", "errors"), [("vllm-0.33.0-single.prom", 0, 0), ("expected.json", 1, 1), ("a:1", 2, 1)]
)
def test_process_ends_with_its_status(name, status, errors):
    """A real process: the exit status, JSON on standard output (none on bad usage), a line an error."""
    done = subprocess.run(
        [sys.executable, "-m", "infscale", "parse", "--format", "json", name],
        cwd=PAGES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, len(done.stderr.splitlines())) == (status, errors)
    assert bool(done.stdout) == (status < 2)

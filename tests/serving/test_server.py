"""Invariant: through real sockets, texts are those of the recogniser; whoever goes beyond a limit is told so in a
sentence, and the streams of others go on; SIGTERM lets streams finish and ends with exit code 0.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from live_server import CONSOLE, END, ROOT, LiveServer, exchange, live_server, send_all, texts
from mind_changer import REVISED, STUBBORN, said
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from transducer_gn.serving.pages import POLICY

LIMITS = {"--streams": 3, "--connections": 12, "--message-bytes": 8000, "--ahead": 4, "--idle": 6}


@pytest.fixture(scope="module")
def limited(revising: Path) -> Iterator[LiveServer]:
    """A server that takes on little."""
    flags = [str(word) for pair in LIMITS.items() for word in pair]
    with live_server("--checkpoint", revising, *flags) as running:
        yield running


def ask(server: LiveServer, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    """The answer to a request for a page, with its text as `.text`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.text = answer.read().decode()
    connection.close()
    return answer


def in_time(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def refuses(server: LiveServer) -> bool:
    """Whether the server takes no new streams."""
    try:
        server.connect().close()
    except InvalidStatus as answer:
        return answer.response.status_code == 503 and b"takes no new streams" in answer.response.body
    return False


def has_place(server: LiveServer) -> bool:
    """Whether a new stream is greeted."""
    with server.connect() as stream:
        return json.loads(stream.recv())["type"] == "ready"


def still_serves(server: LiveServer) -> None:
    """Fail unless a new stream gets its text."""
    with server.connect() as stream:
        assert texts(exchange(stream, said()))[-1] == REVISED


def refused(stream: object) -> tuple[str, str, int]:
    """Reason, sentence and code with which the server ends a stream; text before it is skipped."""
    message = {"type": "ready"}
    while message["type"] != "error":
        message = json.loads(stream.recv(timeout=20))
    with pytest.raises(ConnectionClosed) as closing:
        stream.recv(timeout=20)
    return message["reason"], message["sentence"], closing.value.rcvd.code


def test_both_systems_say_what_they_understand(server: LiveServer) -> None:
    with server.connect("?readings=1") as stream:
        messages = exchange(stream, said())
        assert stream.close_code == 1000
    assert messages[0]["type"] == "ready" and messages[0]["protocol"] == 1
    assert [(system["name"], system["alpha"]) for system in messages[0]["systems"]] == [
        ("local/epoch-1", 1.0),
        ("global/epoch-1", 0.0),
    ]
    assert texts(messages, 0)[-1] == STUBBORN and texts(messages, 1)[-1] == REVISED
    assert [w["text"] for m in messages[1:] for w in m["withdrawn"]] == ["FAN"]
    assert all(message["delay"] >= 0 for message in messages[1:])


def test_the_client_of_the_page_works(server: LiveServer, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "live.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    assert len(code.splitlines()) <= 23
    (tmp_path / "client.py").write_text(code)
    with wave.open(str(tmp_path / "said.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(said().tobytes())
    address = server.address.replace("http", "ws") + "stream"
    command = [sys.executable, "client.py", address, "said.wav"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    lines = output.splitlines()
    assert lines[-1].split(maxsplit=1)[1] == f"{STUBBORN} |"
    assert any(line.endswith("| FAN WENT") for line in lines)


def test_pages_come_with_a_policy_and_nothing_else_is_there(server: LiveServer) -> None:
    page = ask(server)
    assert page.status == 200 and page.getheader("Content-Security-Policy") == POLICY
    assert page.getheader("X-Content-Type-Options") == "nosniff"
    # Nothing on the page comes from elsewhere, and nothing runs that is not a file.
    assert not re.search(
        r"(?:src|href)=\"(?:\w+:|//)| on\w+=|<style|style=|<script(?! type=\"module\" src=)", page.text
    )
    for name in re.findall(r"(?:src|href)=\"([^\"]+)\"", page.text):
        assert ask(server, f"/{name}").status == 200
    assert json.loads(ask(server, "/sentences.json").text) == []
    assert ask(server, "/../pyproject.toml").status == ask(server, "/nothing").status == 404
    assert ask(server, "/stream").status == 426


def test_pages_of_other_origins_are_refused(limited: LiveServer) -> None:
    with pytest.raises(InvalidStatus) as caught:
        limited.connect(origin="https://example.org")
    assert caught.value.response.status_code == 403
    assert b"pages of https://example.org may not connect" in caught.value.response.body
    assert ask(limited, Host="example.org").status == 403
    with limited.connect(origin=f"http://127.0.0.1:{limited.port}") as stream:
        assert json.loads(stream.recv())["type"] == "ready"


def test_one_stream_too_many_is_refused_and_a_place_is_free_again(limited: LiveServer) -> None:
    streams = [limited.connect() for _ in range(3)]
    for stream in streams:
        assert json.loads(stream.recv())["type"] == "ready"
    with limited.connect() as fourth:
        assert refused(fourth) == ("full", "all 3 streams of the server are taken; try again later", 1013)
    streams.pop().close()
    in_time(lambda: has_place(limited))
    for stream in streams:
        send_all(stream, said())
        assert texts([json.loads(message) for message in stream])[-1] == REVISED


@pytest.mark.parametrize(
    ("messages", "reason", "sentence"),
    [
        ([b"\0" * 7999], "not understood", "whole samples"),
        (["garbage"], "not understood", "either binary"),
        (["[" * 7000], "not understood", "either binary"),
        (['{"type": "start"}'], "not understood", "either binary"),
        ([END], "failed", "without any audio"),
        ([b"\0" * 8000] * 200, "ahead", "ahead of the recogniser"),
        ([], "idle", "no message came for 6 s"),
    ],
)
def test_what_a_client_does_wrong_it_is_told(
    limited: LiveServer, messages: list[bytes | str], reason: str, sentence: str
) -> None:
    with limited.connect() as stream:
        # It may be refused before it has said everything.
        with contextlib.suppress(ConnectionClosed):
            for message in messages:
                stream.send(message)
        found = refused(stream)
        assert found[0] == reason and sentence in found[1]
        assert found[2] == {"not understood": 1003, "failed": 1011}.get(reason, 1008)
    still_serves(limited)


def test_a_stream_that_has_ended_takes_no_more_messages(limited: LiveServer) -> None:
    audio = Frame(Opcode.BINARY, b"\0" * 320)
    with limited.connect() as stream:
        # In one piece: the answer to the end must not come before the message after it.
        frames = [audio, Frame(Opcode.TEXT, END.encode()), audio]
        stream.socket.sendall(b"".join(frame.serialize(mask=True) for frame in frames))
        reason, sentence, code = refused(stream)
        assert (reason, code) == ("not understood", 1003) and "takes no more messages" in sentence
    still_serves(limited)


def test_a_message_that_is_too_large_is_not_even_read(limited: LiveServer) -> None:
    with limited.connect() as stream:
        stream.recv()
        # The head of a message of 1 GB; its content never has to come.
        stream.socket.sendall(struct.pack(">BBQ", 0x82, 0x80 | 127, 1 << 30) + b"mask")
        with pytest.raises(ConnectionClosed) as caught:
            stream.recv(timeout=10)
        assert caught.value.rcvd.code == 1009
    still_serves(limited)


def test_connections_beyond_the_limit_are_turned_away_at_once(limited: LiveServer) -> None:
    # Those of tests before this one are to be gone.
    time.sleep(1)
    silent = [socket.create_connection(("127.0.0.1", limited.port), timeout=10) for _ in range(12)]
    with socket.create_connection(("127.0.0.1", limited.port), timeout=10) as another:
        assert another.recv(1000).startswith(b"HTTP/1.1 503 ")
    # Those that say nothing are cut off in turn.
    for each in silent:
        each.settimeout(20)
        assert each.recv(1000) == b""
        each.close()
    still_serves(limited)


def test_bytes_that_are_no_request_are_refused(limited: LiveServer) -> None:
    for data in (b"\x16\x03\x01" * 100 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n"):
        with socket.create_connection(("127.0.0.1", limited.port), timeout=10) as client:
            client.sendall(data)
            assert not client.recv(1000).startswith(b"HTTP/1.1 200")
    still_serves(limited)


def test_a_client_that_does_not_read_costs_nobody_anything(limited: LiveServer) -> None:
    with limited.connect("?readings=1", max_queue=1) as slow, limited.connect() as other:
        for _ in range(20):
            slow.send(b"\1\0" * 400)
        send_all(other, said())
        assert texts([json.loads(message) for message in other])[-1] == REVISED
        slow.socket.close()
    still_serves(limited)


def test_sigterm_lets_streams_finish_and_takes_no_new_ones(revising: Path) -> None:
    with live_server("--checkpoint", revising) as server, server.connect() as stream:
        stream.send(said()[:16000].tobytes())
        stream.recv()
        server.process.send_signal(signal.SIGTERM)
        in_time(lambda: refuses(server))
        send_all(stream, said()[16000:])
        messages = [json.loads(message) for message in stream]
        assert texts(messages)[-1] == REVISED
        assert server.process.wait(20) == 0


def test_sigterm_waits_no_longer_than_it_was_told(revising: Path) -> None:
    with live_server("--checkpoint", revising, "--drain", "0.2") as server, server.connect() as stream:
        stream.send(np.zeros(1600, dtype="<i2").tobytes())
        stream.recv()
        server.process.send_signal(signal.SIGTERM)
        reason, sentence, code = refused(stream)
        assert (reason, code) == ("ending", 1001) and "waits no longer" in sentence
        assert server.process.wait(20) == 0


def recogniser_of(process: subprocess.Popen) -> int:
    """The process that recognises for a server, as soon as it is there."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    return int(found[0])


def test_sigterm_while_it_is_loading_ends_it_without_noise(revising: Path) -> None:
    command = [sys.executable, "-c", CONSOLE, "serve", "--port", "0", "--checkpoint", str(revising)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        recogniser = recogniser_of(process)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors.splitlines()) == (0, "", [f"loading {revising}"])
        assert not Path(f"/proc/{recogniser}").exists()


def test_clients_of_a_recogniser_that_is_lost_are_told(revising: Path) -> None:
    command = [sys.executable, "-c", CONSOLE, "serve", "--port", "0", "--checkpoint", str(revising)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        server = LiveServer(process, re.search(r"http\S+", process.stdout.readline())[0])
        with server.connect() as stream:
            assert json.loads(stream.recv())["type"] == "ready"
            os.kill(recogniser_of(process), signal.SIGKILL)
            assert refused(stream) == ("failed", "the recogniser has ended", 1011)
        assert "start the server again" in process.communicate(timeout=60)[1]
        assert process.returncode == 2


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--checkpoint", "none.pt"], "there is no checkpoint none.pt"),
        (["--checkpoint", "a", "--checkpoint", "b", "--checkpoint", "c"], "at most 2"),
        (["--checkpoint", "EXISTING", "--ahead", "0.1"], "--ahead: must be more than the 0.20 s"),
        (["--checkpoint", "EXISTING", "--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
        ([], "--checkpoint must be given"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(revising: Path, flags: list[str], sentence: str) -> None:
    code = "from transducer_gn.commands.console import main; main()"
    flags = [str(revising) if flag == "EXISTING" else flag for flag in flags]
    command = [sys.executable, "-c", code, "serve", *flags]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert result.returncode == 2
    assert sentence in result.stderr.splitlines()[-1]
    assert result.stderr.splitlines()[-1].startswith("transducer-gn serve: ")

"""Messages through apprise, to a web server in place of a chat."""

import logging
from collections.abc import Callable

import pytest

from pipeline.config import Config
from pipeline.notify.due import plan
from pipeline.notify.http import Failure
from pipeline.notify.sending import send, send_test
from tests.helpers.findings import NOW, Receiver, config_of, finding, notified

pytest.importorskip("apprise")
Load = Callable[..., Config]
SECRET = "hunter2"


def chat(load: Load, url: str) -> Config:
    return config_of(load, '[channels.chat]\ntype = "apprise"\nurl = "${env:URL}"\n', URL=url)


def json_url(receiver: Receiver) -> str:
    """apprise's own URL for a web server that takes JSON."""
    return receiver.url.replace("http://", f"json://user:{SECRET}@") + f"/{SECRET}"


def test_apprise_gets_title_text_and_urgency(load: Load) -> None:
    with Receiver().serving() as receiver:
        config = chat(load, json_url(receiver))
        rows = [
            finding(group_id="<!channel> @here *b*"),
            finding("f2", severity="warning"),
            finding("f3", resolved_at=NOW),
        ]
        found = send(plan(rows, [notified("f3")], config, NOW), config, NOW)
    assert [failure for _, failure in found["chat"].tried] == [None] * 3
    assert [content["type"] for content in receiver.contents] == ["failure", "warning", "success"]
    first = receiver.contents[0]
    assert first["title"].startswith("Critical: slow consumer, group <")
    assert "What to do: Hand records to workers." in first["message"]
    assert not any(mention in f"{first}" for mention in ("<!channel", "@here"))


def test_a_failure_is_one_line_and_nothing_is_logged(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(statuses=(500,)).serving() as receiver, caplog.at_level(logging.DEBUG):
        assert send_test("chat", chat(load, json_url(receiver)), NOW) == Failure("apprise could not deliver it", False)
    assert len(receiver.requests) == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize("url", ["hunter2", "nonsense://hunter2", "slack://hunter2"])
def test_a_url_that_apprise_does_not_understand_is_one_line(
    load: Load, url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert send_test("chat", chat(load, url), NOW) == Failure("its url is not one that apprise understands")
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


def mattermost(receiver: Receiver, query: str) -> str:
    return receiver.url.replace("http://", "mmost://") + f"/{'a' * 24}?{query}"


def test_several_targets_of_one_url_do_not_wait_for_each_other(load: Load) -> None:
    """apprise pauses for seconds between two requests, if it is not said otherwise."""
    with Receiver().serving() as receiver:
        config = config_of(
            load,
            '[channels.chat]\ntype = "apprise"\nurl = "${env:URL}"\ntimeout = "5s"\n',
            URL=mattermost(receiver, "channel=a,b,c,d,e,f"),
        )
        assert send_test("chat", config, NOW) is None
    assert [content["channel"] for content in receiver.contents] == list("abcdef")


@pytest.mark.parametrize(("query", "is_whole"), [("channel=a", True), ("overflow=truncate", False)])
def test_a_message_that_is_too_long_for_a_chat_is_sent_in_parts(load: Load, query: str, is_whole: bool) -> None:
    """Mattermost takes 4,000 characters, and refuses what is longer. A URL may say what it wants instead."""
    advice = " ".join(f"{n:04}" for n in range(390))
    with Receiver().serving() as receiver:
        config = chat(load, mattermost(receiver, query))
        long = finding(summary=advice, evidence='{"seen": "' + advice + '"}', advice=advice)
        assert [f for _, f in send(plan([long], [], config, NOW), config, NOW)["chat"].tried] == [None]
    texts = [content["text"] for content in receiver.contents]
    assert all(len(text) <= 4_000 for text in texts)
    assert texts[-1].endswith("Finding: f1") == (len(texts) == 2) == is_whole


def test_a_flood_is_twenty_messages_and_one(load: Load) -> None:
    with Receiver().serving() as receiver:
        config = chat(load, json_url(receiver))
        send(plan([finding(f"f{n}") for n in range(50)], [], config, NOW), config, NOW)
    assert len(receiver.requests) == 21
    assert receiver.contents[-1]["title"] == "30 more findings: 30 opened"

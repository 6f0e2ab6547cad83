"""Client and server call the same things by the same names, though neither knows the other."""

from __future__ import annotations

from pathlib import Path

from tenuto.telemetry import names
from tenuto_vllm import spans

ROOT = Path(__file__).parents[2]


def attributes_in(module: object) -> dict[str, str]:
    """Return the constants of a module that are names of attributes."""
    return {
        key: value
        for key, value in vars(module).items()
        if key.isupper() and isinstance(value, str) and "." in value
    }


def test_what_both_put_on_spans_has_one_name() -> None:
    client, server = attributes_in(names), attributes_in(spans)
    shared = client.keys() & server.keys()
    assert {"SESSION", "RUN", "PARENT_SESSION", "TURN", "RANK", "CACHED_SHARE"} <= shared
    assert {key: client[key] for key in shared} == {key: server[key] for key in shared}
    # Nothing that one calls so is something else to the other.
    assert set(client.values()) & set(server.values()) == {client[key] for key in shared}


def test_the_page_has_each_name_that_the_server_puts_on_a_span() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = page.partition("### Traces")[2].partition("###")[0]
    assert [name for name in attributes_in(spans).values() if f"`{name}`" not in table] == []

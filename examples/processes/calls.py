"""What the programs share: a server, and one call that tells how it was marked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from openai import OpenAI

import tenuto


def ask(text: str) -> str:
    """Make one call in the session in scope, to the server that `server` has named."""
    with tenuto.wrap(OpenAI(api_key="none")) as client:
        answer = client.chat.completions.with_raw_response.create(
            model=os.environ.get("OPENAI_MODEL", "tiny"),
            messages=[{"role": "user", "content": text}],
            max_tokens=8,
        )
    sent = answer.http_request.headers
    session, turn = sent.get("x-session-id", "none"), sent.get("x-agent-turn", "")
    said = f"{text:12} process {os.getpid():<8} session {session[:8]} {turn}"
    print(said, flush=True)
    return said


@contextlib.contextmanager
def server() -> Iterator[None]:
    """Have this process and its children call the embedded engine, if no other is named."""
    if "OPENAI_BASE_URL" in os.environ:
        yield
        return
    import tenuto_vllm
    from tenuto_vllm.embedded import serve

    with serve(middleware=[tenuto_vllm.TurnMiddleware]) as url:
        os.environ["OPENAI_BASE_URL"] = f"{url}/v1"
        yield

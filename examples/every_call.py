"""Every way to call: sync, streaming, raw, structured, Responses, nested agents.

python examples/every_call.py
"""

from __future__ import annotations

from openai import OpenAI
from pydantic import BaseModel

import tenuto
import tenuto_vllm
from tenuto_vllm.embedded import serve


class Verdict(BaseModel):
    """What the verifier answers."""

    passed: bool
    reason: str


def main(base_url: str) -> None:
    """Make one call of each kind in the session it belongs to."""
    client = tenuto.wrap(OpenAI(base_url=base_url, api_key="none"))
    question = [{"role": "user", "content": "Why do the tests fail?"}]
    with tenuto.run() as run:
        with run.agent("planner") as planner:
            stream = client.chat.completions.create(
                model="tiny", messages=question, max_tokens=16, stream=True
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            print(f"{planner.agent}: {text!r}")
            # Two searches at once are two sessions, children of the planner.
            for i in range(2):
                with run.agent("search", instance=i) as search:
                    fast = client.with_options(max_retries=0)
                    found = fast.responses.create(model="tiny", input="grep", max_output_tokens=8)
                    print(f"{search.agent} {i}: {found.output_text!r}")
        with run.agent("verifier") as verifier:
            parsed = client.chat.completions.parse(
                model="tiny", messages=question, response_format=Verdict
            )
            print(f"{verifier.agent}: {parsed.choices[0].message.parsed!r}")
            raw = client.completions.with_raw_response.create(
                model="tiny", prompt="So:", max_tokens=4
            )
            print(f"{verifier.agent}: served {raw.headers['X-Agent-Served']}")
    # Outside every run a call goes out unmarked and works.
    plain = client.chat.completions.create(model="tiny", messages=question, max_tokens=4)
    print(f"unmarked: {plain.choices[0].finish_reason}")
    client.close()


if __name__ == "__main__":
    with serve(middleware=[tenuto_vllm.TurnMiddleware]) as url:
        main(f"{url}/v1")

"""A request that names a response goes on from all that the response was made of."""

from __future__ import annotations

import json
from typing import Any

from tenuto.recording.answer import Said, read_whole
from tenuto.recording.body import Asked, read_body
from tenuto.recording.conversations import Conversations
from tenuto.trace import cut
from tenuto.trace.runs import Runs, shared


def asked(text: str, after: str | None = None, **given: Any) -> Asked:
    said = {"previous_response_id": after} if after else {}
    return read_body("responses", {"input": [{"role": "user", "content": text}], **said, **given})


def answer(name: str) -> Said:
    output = [{"type": "message", "content": [{"type": "output_text", "text": name * 300}]}]
    said = {"object": "response", "status": "completed", "id": name, "output": output}
    return read_whole(json.dumps(said).encode())


def test_each_prompt_begins_with_the_whole_of_the_one_before_and_its_answer() -> None:
    conversations = Conversations()
    after: str | None = None
    before: Runs = ()
    length = 0
    for n in range(4):
        prompt = conversations.whole(asked(f"{n}" * 3000, after, instructions="be short"))
        assert not prompt.is_partial
        blocks, size = cut(prompt.items)
        assert shared(before, blocks) == sum(count for _, count in before)
        # Longer by the answer, which the prompt holds, and by the question.
        assert size > length + 3000 + (600 if n else 0)
        conversations.note(prompt, answer(f"r{n}"))
        after, before, length = f"r{n}", blocks, size


def test_a_response_that_did_not_pass_here_leaves_the_prompt_partial_and_what_follows_it() -> None:
    conversations = Conversations()
    prompt = conversations.whole(asked("on", "elsewhere"))
    assert prompt.is_partial
    conversations.note(prompt, answer("r"))
    assert conversations.whole(asked("on", "r")).is_partial
    assert conversations.whole(asked("on", conversation={"id": "c"})).is_partial


def test_only_so_many_bytes_are_remembered_the_latest() -> None:
    conversations = Conversations(max_bytes=10_000)
    for n in range(10):
        for _ in range(3):
            conversations.note(asked("x" * 3000), answer(f"r{n}"))
    known = [n for n in range(10) if not conversations.whole(asked("on", f"r{n}")).is_partial]
    assert known == [8, 9]

"""What a recording says comes back from it, whatever stands beside it in its run."""

from __future__ import annotations

from tenuto.trace import CallEvent, Problem
from tenuto.trace.assemble import traces_of

BLOCKS = tuple((n << 16, 1) for n in range(1, 101))


def cut_by_bytes(turn: int, tokens: int) -> CallEvent:
    return CallEvent(
        run_id="r",
        session_id="s",
        turn=turn,
        block_bytes=256,
        input_bytes=25_600,
        blocks=BLOCKS,
        input_tokens=tokens,
        start_s=turn,
        end_s=turn + 0.5,
    )


def test_the_servers_count_of_a_prompt_stays_and_its_blocks_are_no_more_than_fit() -> None:
    (trace,) = traces_of([cut_by_bytes(0, 3000), cut_by_bytes(1, 10_000)])
    turns = trace.sessions[0].turns
    assert [turn.input_tokens for turn in turns] == [3000, 10_000]
    assert sum(count for _, count in turns[0].blocks) == 3000 // trace.block_size


def test_blocks_of_bytes_are_not_taken_for_blocks_of_tokens() -> None:
    counted = [
        CallEvent(
            **{
                "run_id": "r",
                "session_id": "s",
                "turn": turn,
                "start_s": turn,
                "end_s": turn + 0.5,
            },
            block_size=64,
            blocks=((1, 10),),
            input_tokens=640,
        )
        for turn in (0, 1)
    ]
    told: list[Problem] = []
    (trace,) = traces_of([*counted, cut_by_bytes(2, 3000)], told.append)
    assert [turn.input_tokens for turn in trace.sessions[0].turns] == [640, 640, 3000]
    assert trace.sessions[0].turns[2].blocks == ()
    assert len(told) == 1

"""The markers as the JSON text of `vllm_xargs.agentic_context`. Pure.

vllm-router reads the outer words (program scheduling); `tenuto-vllm` reads the member
`tenuto`, which holds the markers as the headers would. It is a text and no object, since
vLLM answers 400 to an object inside `vllm_xargs`, and far below the router's 16 KiB.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quoted

from tenuto import _wire


def agentic_context(markers: _wire.Markers, turn: str, root: str | None = None) -> str:
    """Return the text for one request.

    Args:
        markers: what the request says of itself.
        turn: the `X-Agent-Turn` text, empty for none.
        root: the session at the root of the run; a session without a parent is its own.
    """
    session, parent, run, said, affinity = markers
    # By hand: `json.dumps` takes three times as long, on every request.
    own = quoted(session)
    text = f'{{"program_id":{own},"session_id":{own}'
    ours = f'"session":{own}'
    if parent is not None:
        # The router answers 400 to `blocks_parent` without a parent.
        text += f',"parent_program_id":{quoted(parent)},"blocks_parent":true'
        ours += f',"parent":{quoted(parent)}'
    else:
        root = session
    if root is not None:
        text += f',"root_program_id":{quoted(root)}'
    if said.n is not None:
        text += f',"step_id":{said.n}'
    if said.ttl is not None:
        text += f',"kv_retention_ttl_seconds":{said.ttl}'
    if run is not None:
        ours += f',"run":{quoted(run)}'
    if turn:
        ours += f',"turn":{quoted(turn)}'
    if affinity is not None:
        ours += f',"affinity":{quoted(affinity)}'
    return f'{text},"tenuto":{{{ours}}}}}'

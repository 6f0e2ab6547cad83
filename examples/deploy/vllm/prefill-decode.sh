#!/bin/sh
# One vLLM server of one role, with NIXL between the roles. `tenuto-vllm pd`, vllm-router and llm-d's
# sidecar hand prompts over between servers that are started like this.
#
#   ROLE=prefill MODEL=... ADDRESS=10.0.0.1 sh prefill-decode.sh --port 8000
#   ROLE=decode MODEL=... ADDRESS=10.0.0.3 sh prefill-decode.sh --port 8000
#   tenuto-vllm pd --block-size 64 --prefill http://10.0.0.1:8000 --decode http://10.0.0.3:8000
#
# Both sides have the same release of vLLM, the same text in MODEL, the same dtypes and blocks.
case "${ROLE:?prefill or decode}" in
    prefill) kv_role=kv_producer ;;
    decode) kv_role=kv_consumer ;;
    *) echo "ROLE is prefill or decode" >&2; exit 2 ;;
esac
# Where the other side fetches from. vLLM's default, localhost, is reached from this host alone.
export VLLM_NIXL_SIDE_CHANNEL_HOST="${ADDRESS:?the address of this host}"
# Another one for each server of a host, and one more for each rank.
export VLLM_NIXL_SIDE_CHANNEL_PORT="${SIDE_PORT:-5600}"
# The names of cached blocks begin with it.
export PYTHONHASHSEED=0
# A router that knows no deadline may send a decode after the 30 s for which vLLM keeps blocks, and
# that is answered with 200 and wrong tokens. What nobody fetches is kept as long.
exec vllm serve "${MODEL:?the model to serve}" --block-size 64 --enable-prompt-tokens-details \
    --middleware tenuto_vllm.TurnMiddleware \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "'"$kv_role"'",
        "kv_connector_extra_config": {"kv_lease_duration": '"${LEASE_S:-300}"'}}' "$@"

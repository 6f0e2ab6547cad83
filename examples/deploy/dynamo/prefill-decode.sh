#!/bin/sh
# Dynamo with prefill and decode apart: one frontend, and workers of both roles.
#
#   ROLE=frontend sh prefill-decode.sh --http-port 8080
#   ROLE=prefill MODEL=... ADDRESS=10.0.0.1 sh prefill-decode.sh
#   ROLE=decode MODEL=... ADDRESS=10.0.0.3 sh prefill-decode.sh
#
# With --router-conditional-disagg, experimental in 1.6, a turn is prefilled where it is decoded when
# fewer than 2048 tokens and less than 0.7 of the prompt are new there. Where something outside decides,
# it takes ROUTER_MODE=direct instead: each request then names its workers in headers.
case "${ROLE:?frontend, prefill or decode}" in
    frontend)
        case "${ROUTER_MODE:-kv}" in
            direct) exec python -m dynamo.frontend --router-mode direct "$@" ;;
        esac
        exec python -m dynamo.frontend --router-mode kv --router-conditional-disagg \
            --router-session-affinity-ttl-secs 3600 --router-session-affinity-mode soft "$@"
        ;;
    prefill) kv_role=kv_producer ;;
    decode) kv_role=kv_consumer ;;
    *) echo "ROLE is frontend, prefill or decode" >&2; exit 2 ;;
esac
export VLLM_NIXL_SIDE_CHANNEL_HOST="${ADDRESS:?the address of this host}"
# Another one for each server of a host, and one more for each rank.
export VLLM_NIXL_SIDE_CHANNEL_PORT="${SIDE_PORT:-5600}"
export PYTHONHASHSEED=0
# The frontend learns from these events what the decode worker has cached.
exec python -m dynamo.vllm --model "${MODEL:?the model to serve}" --disaggregation-mode "$ROLE" \
    --block-size 64 \
    --kv-events-config '{"enable_kv_cache_events": true, "publisher": "zmq",
        "topic": "kv-events", "endpoint": "tcp://*:5557"}' \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "'"$kv_role"'",
        "kv_connector_extra_config": {"kv_lease_duration": '"${LEASE_S:-300}"'}}' "$@"

#!/bin/sh
# A tier in LMCache's server, behind leases. That is started first, with chunks of whole blocks:
#
#   lmcache server --host 127.0.0.1 --port 5555 --l1-size-gb 64 --eviction-policy LRU --chunk-size 256
#   MODEL=... sh lmcache.sh --port 8000
#
# On CPU it takes `--supported-transfer-mode engine_driven` as well.
exec vllm serve "${MODEL:?the model to serve}" \
    --middleware tenuto_vllm.TurnMiddleware --scheduler-cls tenuto_vllm.TurnScheduler \
    --kv-transfer-config '{"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
        "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": 5555}}' \
    "$@"

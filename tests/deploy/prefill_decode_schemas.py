"""What systems with roles apart read, written down from their sources."""

from __future__ import annotations

from typing import Any

from tests.deploy.test_files import ANY, LLM_D_SCORER

# `vllm serve --help` of vLLM 0.32, with `vllm/config/kv_transfer.py` and
# `kv_connector/v1/nixl/base_scheduler.py` of it for what is in the connector's JSON
VLLM = {
    *("--port", "--block-size", "--enable-prompt-tokens-details", "--middleware"),
    "--kv-transfer-config",
}
CONNECTOR = {
    "kv_connector": None,
    "kv_role": None,
    "kv_load_failure_policy": None,
    "kv_connector_extra_config": {
        **{"kv_lease_duration": None, "bidirectional_kv_xfer": None},
        **{"kv_recompute_threshold": None, "decoder_kv_blocks_ttl": None},
    },
}
KV_EVENTS = {
    **{"enable_kv_cache_events": None, "publisher": None, "endpoint": None, "topic": None},
    **{"replay_endpoint": None, "buffer_steps": None, "hwm": None, "max_queue_size": None},
}

# `vllm-router --help` of vllm-router 0.1.17
VLLM_ROUTER = {
    *("--host", "--port", "--policy", "--prefill-policy", "--decode-policy"),
    *("--vllm-pd-disaggregation", "--prefill", "--decode", "--kv-connector"),
    *("--kv-aware-session-affinity-ttl-secs", "--enable-program-scheduling"),
    *("--program-scheduling-config-json", "--worker-startup-check-interval"),
    *("--health-check-interval-secs", "--cb-timeout-duration-secs", "--prometheus-port"),
}

# dynamo/frontend/frontend_args.py, dynamo/common/configuration/groups/{router,kv_router}_args.py
# and dynamo/vllm/backend_args.py of the wheel ai-dynamo 1.6.1. A worker takes vLLM's engine
# arguments, and none of vLLM's HTTP server.
DYNAMO_FRONTEND = {
    "--router-mode": {"round-robin", "random", "power-of-two", "kv", "direct", "least-loaded"},
    "--router-session-affinity-ttl-secs": None,
    "--router-session-affinity-mode": {"hard", "soft"},
    "--router-conditional-disagg": None,
    "--router-conditional-disagg-config": None,
}
DYNAMO_WORKER = {
    "--model": None,
    "--disaggregation-mode": {"agg", "pd", "prefill", "decode", "encode"},
    "--block-size": None,
    "--kv-transfer-config": None,
    "--kv-events-config": None,
}

# https://github.com/llm-d/llm-d-router/blob/ebab687927f5331c1b39defcb579a07951bce56c/
# pkg/epp/framework/plugins/: scheduling/profilehandler/disagg, scheduling/filter/bylabel/roles.go,
# scheduling/scorer/*, requestcontrol/dataproducer/approximateprefix/types.go
LLM_D_PARAMETERS: dict[str, Any] = {
    "disagg-profile-handler": {
        "stageOrder": None,
        "profiles": {"decode": None, "prefill": None, "encode": None},
        "deciders": {"prefill": None, "encode": None},
    },
    "prefix-based-pd-decider": {"nonCachedTokens": None, "promptTokens": None},
    "approx-prefix-cache-producer": {
        **{"autoTune": None, "blockSizeTokens": None, "lruCapacityPerServer": None},
        **{"maxPrefixBlocksToMatch": None, "maxPrefixTokensToMatch": None},
    },
    "session-affinity-scorer": LLM_D_SCORER,
    "prefill-filter": {},
    "decode-filter": {},
    "active-request-scorer": {"requestTimeout": None, "idleThreshold": None},
    "prefix-cache-scorer": {"prefixMatchInfoProducerName": None},
    "max-score-picker": {},
}
# The same, pkg/sidecar/proxy/options.go
SIDECAR = {
    "--port": None,
    "--model-server-port": None,
    "--kv-connector": {"nixlv2", "shared-storage", "sglang", "mooncake", "offloading"},
    "--secure-proxy": {"true", "false"},
    "--prefill-max-retries": None,
    "--prefill-retry-backoff": None,
    "--enable-ssrf-protection": {"true", "false"},
    "--inference-pool": None,
}

# https://github.com/kubernetes/api/blob/10b39a39bcee995dfe7cd5e8e7b922be5e46f1e2/
# apps/v1/types.go and core/v1/types.go
CONTAINER = {
    **{"name": None, "image": None, "command": [None], "args": [None], "restartPolicy": None},
    "env": [{"name": None, "value": None, "valueFrom": {"fieldRef": {"fieldPath": None}}}],
    "ports": [{"name": None, "containerPort": None}],
    "readinessProbe": {"httpGet": {"path": None, "port": None}, "periodSeconds": None},
    "lifecycle": {"preStop": {"sleep": {"seconds": None}}},
    "resources": {"limits": ANY, "requests": ANY},
}
DEPLOYMENT = {
    **{"apiVersion": None, "kind": None, "metadata": ANY},
    "spec": {
        "replicas": None,
        "selector": {"matchLabels": ANY},
        "template": {
            "metadata": ANY,
            "spec": {
                "terminationGracePeriodSeconds": None,
                "initContainers": [CONTAINER],
                "containers": [CONTAINER],
            },
        },
    },
}

"""What cannot be run here says only what the systems it is for can read, by their own sources."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto import dialects

DEPLOY = Path(__file__).parents[2] / "examples/deploy"
SCRIPTS = sorted(DEPLOY.glob("*/*.sh"))

ANY: dict[str, Any] = {"*": None}

# https://github.com/llm-d/llm-d-router/blob/ebab687927f5331c1b39defcb579a07951bce56c/
# apix/config/v1alpha1/endpointpickerconfig_types.go, and of the scorer
# pkg/epp/framework/plugins/scheduling/scorer/sessionaffinity/README.md
LLM_D = {
    "apiVersion": None,
    "kind": None,
    "plugins": [{"type": None, "name": None, "parameters": ANY}],
    "schedulingProfiles": [{"name": None, "plugins": [{"pluginRef": None, "weight": None}]}],
}
LLM_D_SCORER = {
    "strategy": None,
    "profileName": None,
    "encodedEndpointHeaderConfig": {"header": None},
    "sessionIdConfig": {
        "sources": [{"header": None, "attribute": None, "producer": None}],
        "evictionTtlSeconds": None,
        "evictionSweepSeconds": None,
    },
}
LLM_D_PLUGINS = {
    "session-affinity-scorer",
    "active-request-scorer",
    "prefix-cache-scorer",
    "max-score-picker",
}

# https://github.com/kubernetes-sigs/gateway-api/blob/4564255ac2c35d582249b3cdf261bdf51c8bca32/
# apis/v1/httproute_types.go
HTTP_ROUTE = {
    "apiVersion": None,
    "kind": None,
    "metadata": ANY,
    "spec": {
        "parentRefs": [{"name": None, "namespace": None, "sectionName": None}],
        "hostnames": [None],
        "rules": [
            {
                "matches": [ANY],
                "filters": [
                    {
                        "type": None,
                        "requestHeaderModifier": {"set": [ANY], "add": [ANY], "remove": [None]},
                    }
                ],
                "backendRefs": [{"name": None, "port": None, "weight": None}],
                "timeouts": {"request": None, "backendRequest": None},
            }
        ],
    },
}
# https://github.com/envoyproxy/gateway/blob/d32f28294245e454d20f81d323d626a90e660c1e/
# api/v1alpha1/loadbalancer_types.go, retry_types.go and timeout_types.go
TRAFFIC_POLICY = {
    "apiVersion": None,
    "kind": None,
    "metadata": ANY,
    "spec": {
        "targetRefs": [{"group": None, "kind": None, "name": None}],
        "loadBalancer": {
            "type": None,
            "consistentHash": {"type": None, "headers": [{"name": None}], "tableSize": None},
        },
        "retry": {"numRetries": None, "retryOn": {"triggers": [None], "httpStatusCodes": [None]}},
        "timeout": {"http": {"connectionIdleTimeout": None, "maxConnectionDuration": None}},
    },
}

# https://github.com/vllm-project/production-stack/blob/a6c01db05f65f556235413ba8dbcfb0c01132fff/
# src/vllm_router/parsers/parser.py and helm/values.schema.json
PRODUCTION_STACK = {
    "--service-discovery": {"static", "k8s", "external-only"},
    "--routing-logic": {"roundrobin", "session", "kvaware", "prefixaware"},
    "--session-key": None,
    "--static-backend-health-checks": None,
    "--static-backend-health-check-interval": None,
}
PRODUCTION_STACK_VALUES = {"routerSpec": {"routingLogic": None, "sessionKey": None}}

# `python -m dynamo.frontend --help` of ai-dynamo 1.6.1
DYNAMO = {
    "--router-mode": {"round-robin", "random", "kv", "direct", "least-loaded"},
    "--router-session-affinity-ttl-secs": None,
    "--router-session-affinity-mode": {"hard", "soft"},
}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def unknown(said: Any, known: Any, at: str = "") -> list[str]:
    """Return the paths of what a schema does not have."""
    if known is None:
        return [at] if isinstance(said, dict | list) else []
    if isinstance(known, list):
        if not isinstance(said, list):
            return [at]
        return [path for one in said for path in unknown(one, known[0], f"{at}[]")]
    if not isinstance(said, dict):
        return [at]
    if known is ANY:
        return []
    return [
        path
        for key, value in said.items()
        for path in (unknown(value, known[key], f"{at}.{key}") if key in known else [f"{at}.{key}"])
    ]


def options(name: str) -> dict[str, str]:
    """Return what a script passes on, as option → value."""
    text = re.sub(r"#.*\n", "", (DEPLOY / name).read_text("utf-8")).replace("\\\n", " ")
    words = text.split()
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {
        word: "" if value.startswith(("-", '"')) else value
        for word, value in pairs
        if word.startswith("--")
    }


def sent(dialect: str) -> set[str]:
    """Return the headers, in lower case, in which a client of this dialect sends a session."""
    carries = dialects.named(dialect).carries
    return {name.lower() for name, marker in carries if marker == "session"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_is_one_that_a_plain_shell_reads(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert script.read_text("utf-8").rstrip().endswith('"$@"')


def test_llm_d_is_told_what_its_endpoint_picker_reads() -> None:
    [config] = documents("llm-d/session-affinity.yaml")
    assert (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    assert unknown(config, LLM_D) == []
    names = [plugin.get("name", plugin["type"]) for plugin in config["plugins"]]
    assert {plugin["type"] for plugin in config["plugins"]} <= LLM_D_PLUGINS
    [profile] = config["schedulingProfiles"]
    assert [plugin["pluginRef"] for plugin in profile["plugins"]] == names


def test_llm_d_keeps_a_session_by_a_header_that_its_dialect_sends_whatever_else_scores() -> None:
    [config] = documents("llm-d/session-affinity.yaml")
    [scorer] = [one for one in config["plugins"] if one["type"] == "session-affinity-scorer"]
    assert unknown(scorer["parameters"], LLM_D_SCORER) == []
    assert scorer["parameters"]["strategy"] == "session_id"
    sources = scorer["parameters"]["sessionIdConfig"]["sources"]
    assert {source["header"] for source in sources} <= sent("llm-d")
    plugins = config["schedulingProfiles"][0]["plugins"]
    weights = {plugin["pluginRef"]: plugin.get("weight", 0) for plugin in plugins}
    assert 2 * weights["session-affinity-scorer"] > sum(weights.values())


def test_envoy_gateway_is_told_what_its_resources_have() -> None:
    route, policy = documents("envoy-gateway/by-session.yaml")
    assert unknown(route, HTTP_ROUTE) == []
    assert unknown(policy, TRAFFIC_POLICY) == []
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert policy["apiVersion"] == "gateway.envoyproxy.io/v1alpha1"
    [target] = policy["spec"]["targetRefs"]
    assert (target["kind"], target["name"]) == (route["kind"], route["metadata"]["name"])


def test_envoy_gateway_hashes_on_a_header_that_is_sent_and_gives_an_answer_its_time() -> None:
    route, policy = documents("envoy-gateway/by-session.yaml")
    hashed = policy["spec"]["loadBalancer"]["consistentHash"]
    assert (policy["spec"]["loadBalancer"]["type"], hashed["type"]) == ("ConsistentHash", "Headers")
    assert {header["name"].lower() for header in hashed["headers"]} <= sent("vllm")
    [rule] = route["spec"]["rules"]
    assert rule["timeouts"]["request"] == "0s"
    assert rule["filters"][0]["requestHeaderModifier"]["remove"] == ["X-data-parallel-rank"]


@pytest.mark.parametrize(
    ("script", "known"),
    [("production-stack/session-key.sh", PRODUCTION_STACK), ("dynamo/frontend.sh", DYNAMO)],
)
def test_a_script_passes_options_that_its_program_has(
    script: str, known: dict[str, set[str] | None]
) -> None:
    said = options(script)
    assert said.keys() == known.keys()
    assert [
        name for name, values in known.items() if values is not None and said[name] not in values
    ] == []


def test_production_stack_hashes_on_the_header_that_its_dialect_sends() -> None:
    key = options("production-stack/session-key.sh")["--session-key"]
    [values] = documents("production-stack/values.yaml")
    assert unknown(values, PRODUCTION_STACK_VALUES) == []
    assert values["routerSpec"] == {"routingLogic": "session", "sessionKey": key}
    assert key in sent("production-stack")


def test_dynamo_binds_sessions_for_a_time_that_it_takes() -> None:
    said = options("dynamo/frontend.sh")
    assert said["--router-mode"] == "kv"
    assert 1 <= int(said["--router-session-affinity-ttl-secs"]) <= 31_536_000
    assert "x-dynamo-session-id" in sent("dynamo")

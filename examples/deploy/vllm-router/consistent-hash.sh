#!/bin/sh
# Every turn of a session goes to one server, by a hash of X-Session-ID. No state: any number of
# routers agree, and a restart moves nothing.
#
#   sh consistent-hash.sh --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000 --port 8080
#
# Of a server that is gone it learns by failed tries, its own retries among them, or by failed health
# checks: one every 5 s here. It takes it back after the circuit breaker's 10 s, and its sessions return.
exec vllm-router --policy consistent_hash --health-check-interval-secs 5 --cb-timeout-duration-secs 10 "$@"

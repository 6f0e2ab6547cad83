#!/bin/sh
# A session's first turn goes to the server with the least load, and its other turns stay there.
# The router remembers who lives where: one router, and a restart of it forgets.
#
#   sh sticky-least-loaded.sh --worker-urls http://10.0.0.1:8000 http://10.0.0.2:8000 --port 8080
exec vllm-router --policy sticky_least_loaded --health-check-interval-secs 5 \
    --cb-timeout-duration-secs 10 "$@"

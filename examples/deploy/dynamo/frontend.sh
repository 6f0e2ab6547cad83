#!/bin/sh
# Every turn of a session goes to the worker and the rank that served its first one, until it has
# said nothing for an hour.
#
# `soft`: the session's worker is preferred while it can be had. `hard`, the default, insists: a call
# that fails there has failed, and the next one is placed anew.
exec python -m dynamo.frontend --router-mode kv --router-session-affinity-ttl-secs 3600 \
    --router-session-affinity-mode soft "$@"

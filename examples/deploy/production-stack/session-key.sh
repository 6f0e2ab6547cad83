#!/bin/sh
# production-stack's own router, whose command is named vllm-router too. Every turn of a session
# goes to one server, by a hash of the header that --session-key names.
#
#   sh session-key.sh --static-backends http://10.0.0.1:8000,http://10.0.0.2:8000 \
#       --static-models MODEL,MODEL --static-model-types chat,chat --port 8080
#
# It tries nothing again. With health checks, each of which is a small model call, a server that is
# gone leaves the ring; without them its sessions fail until it is back.
exec vllm-router --service-discovery static --routing-logic session --session-key x-session-id \
    --static-backend-health-checks --static-backend-health-check-interval 10 "$@"

#!/bin/sh
# SGLang 0.5.23 for GLM-4.7-FP8 on 8 GPUs of 141 GB, with HiCache.
#
# NOT RUN: written without a GPU at hand, from SGLang's documentation and its source. Flags of the
# engine only; `thunder-router doctor --worker-urls http://HOST:30000` says what it found.
#
#     examples/launch/glm-4.7.sh [more flags]
#     thunder-router serve --port 8000 --worker-urls http://HOST:30000
#
# GLM-5 and 5.1 take the same parsers; GLM-4.5 and 4.6 take --tool-call-parser glm45.
# Below 0.5.16 drop --enable-session-radix-cache.
set -eu

# --hicache-size is in GB per rank: 100 here are 800 GB of host memory over 8 ranks. It overrides
# --hicache-ratio.
exec python -m sglang.launch_server \
    --model-path zai-org/GLM-4.7-FP8 \
    --tp-size 8 \
    --tool-call-parser glm47 \
    --reasoning-parser glm45 \
    --mem-fraction-static 0.85 \
    --page-size 64 \
    --enable-hierarchical-cache \
    --hicache-size 100 \
    --hicache-write-policy write_through \
    --enable-metrics \
    --enable-cache-report \
    --enable-session-radix-cache \
    --host 0.0.0.0 \
    --port 30000 \
    "$@"

#!/bin/sh
# SGLang 0.5.23 for MiniMax-M2.5 on 4 GPUs of 96 GB, with HiCache.
#
# NOT RUN: written without a GPU at hand, from SGLang's documentation and its source. Flags of the
# engine only; `thunder-router doctor --worker-urls http://HOST:30000` says what it found.
#
#     examples/launch/minimax-m2.5.sh [more flags]
#     thunder-router serve --port 8000 --worker-urls http://HOST:30000
#
# Weights take about 220 GB, and 1M tokens of KV cache about 240 GB over all ranks. With 8 GPUs:
# --tp-size 8 --ep-size 8. Below 0.5.16 drop --enable-session-radix-cache.
set -eu

# The host tier holds twice the device's tokens, in pages of 64: a paused program is loaded back
# instead of computed anew. Metrics and the cache report tell the router what was kept. Sessions let
# it say whose KV cache may go first.
exec python -m sglang.launch_server \
    --model-path MiniMaxAI/MiniMax-M2.5 \
    --trust-remote-code \
    --tp-size 4 \
    --tool-call-parser minimax-m2 \
    --reasoning-parser minimax-append-think \
    --mem-fraction-static 0.85 \
    --page-size 64 \
    --enable-hierarchical-cache \
    --hicache-ratio 2 \
    --hicache-write-policy write_through \
    --hicache-io-backend kernel \
    --hicache-mem-layout page_first \
    --enable-metrics \
    --enable-cache-report \
    --enable-session-radix-cache \
    --host 0.0.0.0 \
    --port 30000 \
    "$@"

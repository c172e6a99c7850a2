#!/bin/sh
# Claude Code on models that this router serves.
#
#     examples/claude-code.sh                      # takes claude's own arguments
#     THUNDER_ROUTER=http://router:30000 THUNDER_API_KEY=... THUNDER_MODEL=glm-4.7 examples/claude-code.sh
#
# Nothing names the program here: Claude Code sends its session in a header of its own, and the
# agent within it in another, so that a session is a program and each of its sub-agents is one too.
# The worker must serve /v1/messages: SGLang from 0.5.9 on, with its Python front end.
set -eu

export ANTHROPIC_BASE_URL="${THUNDER_ROUTER:-http://127.0.0.1:30000}" # without /v1
export ANTHROPIC_AUTH_TOKEN="${THUNDER_API_KEY:-unused}"              # the router's api_key
unset ANTHROPIC_API_KEY                                               # it would be asked about

# All of Claude Code's tiers go to the one model. SGLang answers under any name; where several
# models are served, the name chooses between them.
model="${THUNDER_MODEL:-local-model}"
export ANTHROPIC_MODEL="$model"
export ANTHROPIC_DEFAULT_OPUS_MODEL="$model"
export ANTHROPIC_DEFAULT_SONNET_MODEL="$model"
export ANTHROPIC_DEFAULT_HAIKU_MODEL="$model"
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1

exec claude "$@"

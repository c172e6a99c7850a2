#!/bin/sh
# Installs SGLang 0.5.23 for CPU into a virtual environment of its own, unless it is there already.
#
#   install.sh VENV
#
# SGLang's wheel asks for CUDA builds that a CPU never calls, so it goes in without its dependencies,
# and those it does use are named here. About 3 GB with a CPU build of torch, 6 GB with the CUDA
# build, which runs on a CPU too. What is still missing then is in stubs/.
set -eu

venv=$1
stamp=$venv/.sglang-0.5.23
[ ! -e "$stamp" ] || exit 0

[ -x "$venv/bin/python" ] || ${PYTHON:-python3} -m venv "$venv"
install() { "$venv/bin/python" -m pip install -q "$@"; }

install torch==2.13.0
install --no-deps triton # imported, never compiled
install torch==2.13.0 \
    "apache-tvm-ffi==0.1.11" "compressed-tensors==0.18.0" "mistral_common>=1.11.5" \
    "openai==2.8.0" "openai-harmony==0.0.4" "prometheus-client>=0.20.0" "pyzmq>=25.1.2" \
    "sentencepiece==0.2.1" "tokenizers==0.23.2" "transformers==5.19.0" "uvicorn>=0.51" \
    IPython aiohttp dill distro einops fastapi gguf msgspec numpy nvidia-ml-py orjson packaging \
    partial_json_parser pillow psutil pybase64 pydantic python-multipart regex requests scipy \
    setproctitle soundfile tiktoken tqdm uvloop watchfiles zstandard
install --no-deps "xgrammar==0.2.7" "sglang==0.5.23"

touch "$stamp"

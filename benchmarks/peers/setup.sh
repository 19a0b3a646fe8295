#!/usr/bin/env bash
# Makes the peers' virtual environments, which the dispatch benchmark then finds:
#
#   benchmarks/peers/setup.sh [folder]      default: out/peers
#
# About 1.5 GB of downloads; needs nothing else of this repository.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../out/peers}
python=${PYTHON:-python3}
mkdir -p "$folder"

"$python" -m venv "$folder/jax"
"$folder/jax/bin/pip" install --quiet jax==0.10.2

# torch-tpu asks for packages that only a TPU needs, so that it is installed without them.
"$python" -m venv "$folder/torch_tpu"
"$folder/torch_tpu/bin/pip" install --quiet torch==2.13.0 --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" ||
  "$folder/torch_tpu/bin/pip" install --quiet torch==2.13.0
"$folder/torch_tpu/bin/pip" install --quiet numpy pyzmq absl-py protobuf portpicker \
  immutabledict fastatomstruct-xla-cpu==2026.6.23
"$folder/torch_tpu/bin/pip" install --quiet --no-deps torch-tpu==0.2.0
echo "The peers are in $folder"

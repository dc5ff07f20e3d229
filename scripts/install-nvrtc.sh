#!/bin/sh
# Installs NVIDIA's run-time compiler from its Python wheel into a folder, and
# prints the path of the library. No GPU, driver or CUDA toolkit is needed.
#
#   scripts/install-nvrtc.sh FOLDER
set -eu
folder=${1:?"usage: install-nvrtc.sh FOLDER"}
version='nvidia-cuda-nvrtc==13.0.*'

library() {
    find "$folder" -name 'libnvrtc.so.13' 2>/dev/null | sort | head -n 1
}

if [ -z "$(library)" ]; then
    mkdir -p "$folder"
    wheels=$(mktemp -d)
    trap 'rm -rf "$wheels"' EXIT
    python3 -m pip download --quiet --no-deps --dest "$wheels" "$version" >&2
    # A wheel is a zip archive; unpacking it needs no environment and no root.
    python3 -m zipfile --extract "$wheels"/*.whl "$folder"
fi
found=$(library)
[ -n "$found" ] || { echo "no libnvrtc.so.13 in $folder after installing $version" >&2; exit 1; }
echo "$found"

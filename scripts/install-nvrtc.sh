#!/bin/sh
# Installs NVIDIA's run-time compiler from its Python wheel into a folder, and
# prints the path of the library. No GPU, driver or CUDA toolkit is needed.
#
#   scripts/install-nvrtc.sh FOLDER
set -eu
folder=${1:?"usage: install-nvrtc.sh FOLDER"}
version='nvidia-cuda-nvrtc==13.0.*'

library() {
    find "$folder" -name 'libnvrtc.so.13' -not -path '*/unpacked.*' 2>/dev/null | sort | head -n 1
}

# A network may fail once.
download() {
    for pause in 5 20 0; do
        python3 -m pip download --quiet --no-deps --dest "$1" "$version" >&2 && return
        sleep "$pause"
    done
    echo "the wheel $version could not be downloaded with python3 -m pip" >&2
    return 1
}

if [ -z "$(library)" ]; then
    mkdir -p "$folder"
    # Beside its place, so that a call that is interrupted leaves no half library there.
    unpacked=$(mktemp -d "$folder/unpacked.XXXXXX")
    trap 'rm -rf "$unpacked"' EXIT
    TMPDIR=$unpacked download "$unpacked"
    # A wheel is a zip archive; unpacking it needs no environment and no root.
    python3 -m zipfile --extract "$unpacked"/*.whl "$unpacked/site"
    for part in "$unpacked/site"/*; do
        rm -rf "$folder/$(basename "$part")"
        mv "$part" "$folder/"
    done
fi
found=$(library)
[ -n "$found" ] || { echo "no libnvrtc.so.13 in $folder after installing $version" >&2; exit 1; }
echo "$found"

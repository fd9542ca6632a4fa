#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists the functions of a driver that this library does not know: a newer driver's.
#
# usage: ./find_new_lib.sh LIBCUDA LIBNVIDIA_ML      as found by: ldconfig -p | grep -E 'cuda|nvidia-ml'
#
# Known are the functions that the sources beside this script list: those that are replaced or called
# (src/driver/*.def), and those that were looked at and are left to the driver (src/abi/cuda_versions.def,
# src/abi/nvml_api.h, src/sim/cuda/entries.def). A function that is not known goes on to the driver as
# all that is not replaced; a new version of one that is replaced is marked, because limits may not
# hold in it. Needs nm or readelf (binutils) or python3.
#
# The exit status is 0, with functions to list or without; 1 where the sources are missing or none of
# these tools is there; 2 where the arguments are not understood.
set -u
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd) || exit 1

fail() {
    status=$1
    shift
    printf 'find_new_lib.sh: %s\n' "$*" >&2
    exit "$status"
}

# The defined dynamic symbols of the library $1; the sed drops versions.
symbols() {
    if command -v nm >/dev/null 2>&1; then
        nm -D --defined-only "$1" | awk '{ print $NF }' | sed 's/@.*//'
    elif command -v readelf >/dev/null 2>&1; then
        readelf -W --dyn-syms "$1" | awk '$7 != "UND" && $8 != "" { print $8 }' | sed 's/@.*//'
    elif command -v python3 >/dev/null 2>&1; then
        python3 - "$1" <<'PYTHON'
import struct
import sys

with open(sys.argv[1], "rb") as file:
    image = file.read()
start, = struct.unpack_from("<Q", image, 40)
size, count = struct.unpack_from("<HH", image, 58)
sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + i * size) for i in range(count)]
for section in sections:
    if section[1] != 11:  # SHT_DYNSYM
        continue
    names = sections[section[6]][4]
    for at in range(section[4], section[4] + section[5], 24):
        name, _, _, defined = struct.unpack_from("<IBBH", image, at)
        if defined:
            print(image[names + name:image.index(b"\0", names + name)].decode())
PYTHON
    else
        fail 1 "none of nm, readelf (binutils) and python3 is here; one of them is needed"
    fi
}

check() {
    if [ ! -f "$1" ] || [ ! -r "$1" ]; then
        fail 2 "\"$1\" is no file that can be read; accepted: the path of $2"
    fi
    [ "$(head -c 5 "$1" | od -An -tx1 | tr -d ' ')" = 7f454c4602 ] ||
        fail 2 "\"$1\" is no 64-bit ELF library; accepted: the path of $2"
}

# What begins with $2 and is no known function, of the library $1.
list() {
    functions=$(symbols "$1") || fail 1 "the symbols of \"$1\" could not be read"
    functions=$(printf '%s\n' "$functions" | grep "^$2[A-Z]" | sort -u)
    [ -n "$functions" ] || fail 2 "\"$1\" has no function $2...; accepted: the path of $3"
    printf '%s\n' "$functions" | awk -v known="$known" -v replaced="$replaced" '
        function base(name) {
            sub(/_pt[sd][zs]$/, "", name)
            sub(/_v[0-9]+$/, "", name)
            return name
        }
        BEGIN {
            count = split(known, names, " ")
            for (i = 1; i <= count; i++) is_known[names[i]] = 1
            count = split(replaced, names, " ")
            for (i = 1; i <= count; i++) of[base(names[i])] = names[i]
        }
        !($0 in is_known) {
            print $0 (base($0) in of ? "    a version of " of[base($0)] ", which is replaced" : "")
            unknown++
        }
        END { printf "%d of %d functions are not known\n", unknown, NR > "/dev/stderr" }'
}

[ $# -eq 2 ] || fail 2 "$# arguments; accepted: ./find_new_lib.sh LIBCUDA LIBNVIDIA_ML"
for file in src/driver/cuda.def src/driver/nvml.def src/abi/cuda_versions.def src/abi/nvml_api.h \
    src/sim/cuda/entries.def; do
    [ -r "$here/$file" ] || fail 1 "$here/$file is missing; run it where the sources lie"
done
check "$1" "the driver's libcuda.so.1"
check "$2" "the driver's libnvidia-ml.so.1"
replaced=$(sed -n 's/^HOOK(\([A-Za-z0-9_]*\)).*/\1/p' "$here"/src/driver/*.def | tr '\n' ' ')
known=$({
    sed -n 's/^[A-Z]*(\([A-Za-z0-9_]*\)[,)].*/\1/p' "$here"/src/driver/*.def \
        "$here/src/abi/cuda_versions.def" "$here/src/sim/cuda/entries.def"
    sed -n 's/^[a-zA-Z].*[ *]\(nvml[A-Za-z0-9_]*\)(.*/\1/p' "$here/src/abi/nvml_api.h"
} | tr '\n' ' ')
printf '%s:\n' "$1"
list "$1" cu "the driver's libcuda.so.1" || exit
printf '%s:\n' "$2"
list "$2" nvml "the driver's libnvidia-ml.so.1" || exit

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lists prove themselves: what must not compile or link does not. Usage: build_errors.sh SOURCE CC...
src=$1
shift
cc=${*:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
failed=0
flags="-std=gnu11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -Werror=missing-prototypes -I$src/src -I$src/include"

report() { # report GOOD SENTENCE
    number=$((number + 1))
    if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; failed=1; fi
}

compiles() { # compiles CODE: exit status of the compiler
    printf '#include "hook/hook.h"\n%s\n' "$1" >"$work/case.c"
    # shellcheck disable=SC2086
    $cc $flags -c "$work/case.c" -o "$work/case.o" 2>"$work/errors"
}

refused() { # refused SENTENCE CODE TEXT_IN_THE_ERROR
    if compiles "$2"; then
        report 1 "$1"
    else
        grep -q -- "$3" "$work/errors"
        report $? "$1"
    fi
}

good='CUresult hook_cuMemFree_v2(CUdeviceptr dptr) { return cuda.cuMemFree_v2(dptr); }'
compiles "$good"
report $? "a body with its row and signature compiles"
refused "a body with a wrong signature does not" \
    'CUresult hook_cuMemFree_v2(CUdeviceptr dptr, int more) { (void)more; return cuda.cuMemFree_v2(dptr); }' \
    'conflicting types'
refused "a body without a row does not" \
    'CUresult hook_cuMemHostAlloc(void **pp, size_t n, unsigned f) { (void)pp; (void)n; (void)f; return 0; }' \
    'no previous prototype'
refused "a call to the exported name instead of the driver's function does not" \
    'CUresult hook_cuMemFree_v2(CUdeviceptr dptr) { return cuMemFree_v2(dptr); }' 'our own hook'

cd "$src/src" || exit 1
sources=$(find base region driver container rm memory compute pace hook \
    -name '*.c' ! -name cuda_view.c)
# shellcheck disable=SC2086
if $cc $flags '-DVGPU_VERSION="0"' -shared -Wl,--no-undefined -Wl,-Bsymbolic \
    "-Wl,--version-script=$src/src/hook/doors.map" $sources "$src/src/hook/door_symbol.S" \
    -o "$work/library.so" 2>"$work/errors"; then
    report 1 "a row without a body does not link"
else
    grep -q 'cuMemGetInfo_v2' "$work/errors"
    report $? "a row without a body does not link"
fi
echo "1..$number"
exit $failed

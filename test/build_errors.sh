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
header=hook/hook.h
flags="-std=gnu11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -Werror=missing-prototypes -I$src/src -I$src/include -I$work"

report() { # report GOOD SENTENCE
    number=$((number + 1))
    if [ "$1" = 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; failed=1; fi
}

compiles() { # compiles CODE: exit status of the compiler
    printf '#include "%s"\n%s\n' "$header" "$1" >"$work/case.c"
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

list() { # list CODE: what a list of CODE for hook/twins.h is included by
    printf '%s\n' "$1" >"$work/list.def"
    echo '#define TWINS "list.def"
#include "hook/twins.h"'
}
compiles "$(list 'CUresult PTSZ(hook_cuMemFreeAsync)(CUdeviceptr dptr, CUstream stream)
    { (void)STREAM_ZERO; return cuda.PTSZ(cuMemFreeAsync)(dptr, stream); }')"
report $? "a body in a list stands for a function and its twin"
refused "a body in a list with a wrong signature does not compile" \
    "$(list 'CUresult PTSZ(hook_cuMemFreeAsync)(CUdeviceptr dptr) { (void)dptr; return 0; }')" \
    'conflicting types'
refused "a body in a list without a row for the twin does not" \
    "$(list 'CUresult PTSZ(hook_cuMemFree_v2)(CUdeviceptr dptr) { (void)dptr; return 0; }')" \
    'no previous prototype'
refused "a call to the exported name instead of the driver's function does not" \
    'CUresult hook_cuMemFree_v2(CUdeviceptr dptr) { return cuMemFree_v2(dptr); }' 'our own hook'

# Which lock guards what, and where it is held, is known to clang's analysis only.
analyse() { # analyse BODY: `count` may be touched in it where the lock `guard` is held
    compiles "static struct lock guard, other; static int count GUARDED_BY(guard);
        int judged(int n); static void touch(void) REQUIRES(guard); static void touch(void) { count++; }
        int judged(int n) { int sum = 0; $1 return sum + n + other.again; }"
}

reported() { # reported SENTENCE BODY TEXT_IN_THE_ERROR
    if analyse "$2"; then
        report 1 "$1"
    else
        grep -q -- "$3" "$work/errors"
        report $? "$1"
    fi
}

if echo | $cc -dM -E - | grep -q __clang__; then
    header=base/lock.h
    flags="$flags -Werror=thread-safety -Wall -Wshadow"
    analyse 'LOCKED(other) LOCKED(guard) { if (n == 1) return count; if (n == 2) break; if (n == 3) continue; touch(); }
        LOCKED(guard) sum = count; LOCKED_TO_END(guard); if (n == 4) return count; touch();'
    report $? "what is touched under its lock compiles, however LOCKED is left"
    reported "what is touched behind LOCKED does not" 'LOCKED(guard) touch(); sum = count;' 'requires holding'
    reported "what is touched behind a LOCKED that is left does not" \
        'LOCKED(guard) { if (n) break; touch(); } touch();' 'requires holding'
    reported "what is touched before LOCKED_TO_END does not" 'touch(); LOCKED_TO_END(guard);' 'requires holding'
    reported "what is touched under another lock does not" 'LOCKED(other) touch();' 'requires holding'
    reported "a lock that is taken twice does not" 'LOCKED(guard) LOCKED(guard) touch();' 'while mutex'
    reported "a lock that is taken until the end and again does not" \
        'LOCKED_TO_END(guard); LOCKED(guard) touch();' 'while mutex'
    reported "a lock that is released within LOCKED does not" 'LOCKED(guard) lock_release(&guard);' 'not held'
fi

cd "$src/src" || exit 1
sources=$(find base config residency registry region account driver container rm memory compute pace vmem hook \
    -name '*.c' ! -name cuda_view.c)
# shellcheck disable=SC2086
if $cc $flags '-DVGPU_VERSION="0"' -shared -Wl,--no-undefined -Wl,-Bsymbolic \
    "-Wl,--version-script=$src/src/hook/door/doors.map" $sources "$src"/src/hook/door/*.S \
    -o "$work/library.so" 2>"$work/errors"; then
    report 1 "a row without a body does not link"
else
    grep -q 'cuMemGetInfo_v2' "$work/errors"
    report $? "a row without a body does not link"
fi
echo "1..$number"
exit $failed

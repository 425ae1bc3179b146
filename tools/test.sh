#!/usr/bin/env bash
# Sets up and runs every test: Python, examples and documentation; C and C++; the same, and every operator from Python,
# under ASan+UBSan, and TSan.
#
#   tools/test.sh            everything
#   tools/test.sh quick      without the sanitizer builds
set -euo pipefail
. "$(dirname "$0")/setup.sh"

started=$SECONDS
setup "[test]"
took() { printf -- '-- %s took %d s\n' "$1" $((SECONDS - since)); }

# A build folder for each kind of build; ccache shares objects between the first and the wheel's.
build_and_test() { # NAME [MESON OPTION ...]
    local name=$1 since=$SECONDS
    shift
    say "C and C++ tests: $name"
    [ -d "build/$name" ] || meson setup "build/$name" "$@" >/dev/null || stop "meson setup build/$name failed"
    ninja -C "build/$name" >"build/$name.log" 2>&1 || { tail -n 40 "build/$name.log"; stop "build/$name does not compile"; }
    meson test -C "build/$name" --print-errorlogs
    took "$name"
}

build_and_test plain
if [ "${1:-}" != quick ]; then
    build_and_test asan -Db_sanitize=address,undefined -Dbuildtype=debugoptimized -Doptimization=1
    build_and_test tsan -Db_sanitize=thread -Dbuildtype=debugoptimized -Doptimization=1
fi

if [ "${1:-}" != quick ]; then
    say "Every operator from Python, under ASan and UBSan"
    since=$SECONDS
    # Leaks are not looked for: the interpreter itself ends with many.
    CLIKA_LIBRARY="$PWD/build/asan/libclikart.so.0" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $(gcc -print-file-name=libstdc++.so.6)" \
        python -m pytest -q -p no:cacheprovider tests/python/test_operators.py tests/python/test_{edges,index,norm,packed,random,shaping,windows}.py
    took "operators under ASan"
fi

say "Python tests, examples, documentation"
since=$SECONDS
python -m pytest -q -p no:cacheprovider
took pytest
printf '\nall of it took %d s\n' $((SECONDS - started))

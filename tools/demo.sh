#!/usr/bin/env bash
# Sets up and runs the main job: handwritten digits, in Python, C++ and C.  The first build takes about two minutes.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

setup "[demo]"
mkdir -p build
flags=$(pkg-config --cflags --libs clikart)

say "Python: examples/python/digits.py"
.venv/bin/python examples/python/digits.py build/digits.safetensors
say "C++: examples/cpp/digits.cpp"
g++ -std=c++20 -O2 examples/cpp/digits.cpp -o build/digits_cpp $flags
build/digits_cpp build/digits.safetensors
say "C: examples/c/digits.c"
gcc -std=c11 -O2 examples/c/digits.c -o build/digits_c $flags
build/digits_c build/digits.safetensors

// ClikaRT for C++20.  Header-only over the C ABI of libclikart, so it works with any compiler and standard library.
#pragma once

#include <ClikaRT/compile.h>
#include <ClikaRT/control.h>
#include <ClikaRT/enums.h>
#include <ClikaRT/error.h>
#include <ClikaRT/graph.h>
#include <ClikaRT/operators.h>
#include <ClikaRT/ops.h>
#include <ClikaRT/safetensors.h>
#include <ClikaRT/scope.h>
#include <ClikaRT/shaping.h>
#include <ClikaRT/stream.h>
#include <ClikaRT/tensor.h>

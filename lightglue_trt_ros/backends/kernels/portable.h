// What every .cu file here begins with.
//
// The .ptx beside each is made of it (`make kernels`) and is what runs: a driver compiles it for its GPU, nothing else is needed.
// Every kernel strides over its work, so that one thread can do what many do: where no CUDA compiler reads this, it is plain C++
// with one lane, which the tests call.

#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
constexpr int LANES = 32, WARPS = 8, THREADS = 256;  // lanes of a warp, warps and threads of a block
#else
#include <algorithm>
#include <cmath>
using std::isfinite, std::max, std::min;
#define KERNEL extern "C" void
#define SHARED static
#define __device__ static
constexpr int LANES = 1, WARPS = 1, THREADS = 1;
static const struct { unsigned x, y; } blockIdx = {0, 0}, blockDim = {1, 1}, gridDim = {1, 1}, threadIdx = {0, 0};
[[maybe_unused]] static void __syncwarp() {}
[[maybe_unused]] static void __syncthreads() {}
#endif

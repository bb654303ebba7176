// What every .cu file here begins with.
//
// The .ptx beside each is made of it (`make kernels`) and is what runs: a driver compiles it for its GPU, nothing else is needed.
// Every kernel strides over its work, so that one thread can do what many do: where no CUDA compiler reads this, it is plain C++
// with one lane, which the tests call.

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#include <instructions.h>
#define KERNEL extern "C" __global__ void
#define SHARED __shared__
constexpr int LANES = 32, WARPS = 8, THREADS = 256;  // lanes of a warp, warps and threads of a block
#else
#include <algorithm>
#include <cmath>
#include <vector>
using std::isfinite, std::max, std::min;
#define KERNEL extern "C" void
#define SHARED static
#define __launch_bounds__(...)
#define __device__ static
constexpr int LANES = 1, WARPS = 1, THREADS = 1;
static const struct { unsigned x, y; } blockIdx = {0, 0}, blockDim = {1, 1}, gridDim = {1, 1}, threadIdx = {0, 0};
struct alignas(16) uint4 { uint32_t x, y, z, w; };
[[maybe_unused]] static void __syncwarp() {}
[[maybe_unused]] static void __syncthreads() {}
#endif

typedef uint16_t half;  // the bits of an FP16 value

[[maybe_unused]] __device__ uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

[[maybe_unused]] __device__ float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

[[maybe_unused]] __device__ float float_of(half x) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
#else
    uint32_t magnitude = x & 0x7fffu, sign = (uint32_t)(x & 0x8000u) << 16;
    if (magnitude >= 0x7c00u) return of_bits(sign | 0x7f800000u | magnitude << 13);  // infinite or NaN
    return of_bits(sign | bits_of(of_bits(magnitude << 13) * 0x1p112f));  // the exponents' offsets differ by 112
#endif
}

[[maybe_unused]] __device__ half half_of(float x) {  // to the nearest, ties to even, as a cast does
#ifdef __CUDA_ARCH__
    half narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
    return narrow;
#else
    uint32_t magnitude = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) return 0x7fffu;  // NaN, as a GPU writes it
    if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // from 65536 on infinite
    if (magnitude < 0x38800000u) return sign | (bits_of(of_bits(magnitude) + 0.5f) - bits_of(0.5f));  // subnormal: the sum rounds
    return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
#endif
}

[[maybe_unused]] __device__ uint32_t halves_of(float low, float high) {
#if __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return half_of(low) | (uint32_t)half_of(high) << 16;
#endif
}

template <class T>
[[maybe_unused]] __device__ T sum(T x) {  // over the lanes of a warp; each gets it
#ifdef __CUDACC__
    for (int other = LANES / 2; other; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
#endif
    return x;
}

// Of one place by many threads. Returns what was there.
[[maybe_unused]] __device__ uint32_t add_to(uint32_t *place, uint32_t value) {
#ifdef __CUDACC__
    return atomicAdd(place, value);
#else
    return (*place += value) - value;
#endif
}

[[maybe_unused]] __device__ void raise_to(uint64_t *place, uint64_t key) {
#ifdef __CUDACC__
    atomicMax((unsigned long long *)place, (unsigned long long)key);
#else
    *place = max(*place, key);
#endif
}

[[maybe_unused]] __device__ void set_bits(uint32_t *place, uint32_t bits) {
#ifdef __CUDACC__
    atomicOr(place, bits);
#else
    *place |= bits;
#endif
}

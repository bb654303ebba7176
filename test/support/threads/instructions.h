// CUDA for threads of the CPU, in place of kernels/instructions.h: the kernels run as they are, a thread for each of theirs.
//
// Blocks run one after another. Warps meet at barriers, and values are in the lanes that the PTX ISA names. A copy to shared memory
// happens at once or when it is waited for, in turn, since a GPU may do either.

#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#define __CUDACC__
#define __global__
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

using std::isfinite, std::max, std::min;

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct Index { unsigned x, y; };

static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;

static float float_of(uint16_t);  // of portable.h

struct Warp {
    std::barrier<> meeting{32};
    uint32_t given[2][32][6];  // by two in turn, so that one meeting is enough
};

static std::vector<Warp *> warps;
static std::barrier<> *everyone;
static thread_local int turn;

static void __syncthreads() { everyone->arrive_and_wait(); }

// What each lane of the warp gives.
template <class... Values>
static const uint32_t (*exchanged(Values... values))[6] {
    Warp *warp = warps[threadIdx.x / 32];
    auto *given = warp->given[turn ^= 1];
    uint32_t *own = given[threadIdx.x % 32];
    ((*own++ = values), ...);
    warp->meeting.arrive_and_wait();
    return given;
}

[[maybe_unused]] static void __syncwarp() { exchanged(); }

template <class T>
[[maybe_unused]] static T __shfl_xor_sync(unsigned, T x, int other) {
    uint32_t bits[2] = {};
    memcpy(bits, &x, sizeof x);
    memcpy(&x, exchanged(bits[0], bits[1])[threadIdx.x % 32 ^ other], sizeof x);
    return x;
}

[[maybe_unused]] static void atomicMax(unsigned long long *place, unsigned long long value) {
    std::atomic_ref<unsigned long long> shared(*place);
    for (unsigned long long old = shared; old < value && !shared.compare_exchange_weak(old, value);) {}
}

[[maybe_unused]] static uint32_t atomicAdd(uint32_t *place, uint32_t value) { return std::atomic_ref<uint32_t>(*place).fetch_add(value); }
[[maybe_unused]] static uint32_t atomicOr(uint32_t *place, uint32_t value) { return std::atomic_ref<uint32_t>(*place).fetch_or(value); }

static float half_in(uint32_t pair, int which) { return float_of((uint16_t)(pair >> which * 16)); }

// "Matrix Fragments for mma.m16n8k8": with group = lane / 4 and quad = lane % 4, A's row is group, and group + 8 of a1; its columns
// are 2 quad and 2 quad + 1. B's rows are those columns, its column is group. The result's columns are 2 quad and 2 quad + 1, its
// rows group, and group + 8 of c2 and c3.
[[maybe_unused]] static void mma(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    auto given = exchanged(a0, a1, b);
    for (int i = 0; i < 4; i++) {
        int group = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2 + i % 2;
        for (int k = 0; k < 8; k++)
            sums[i] += half_in(given[group * 4 + k / 2][i / 2], k % 2) * half_in(given[column * 4 + k / 2][2], k % 2);
    }
}

// "Matrix Fragments for mma.m16n8k16": as above; a2, a3 and b1 are 8 columns of A, rows of B, further.
[[maybe_unused]] static void mma(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    auto given = exchanged(a[0], a[1], a[2], a[3], b0, b1);
    for (int i = 0; i < 4; i++) {
        int group = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++)
            sums[i] += half_in(given[group * 4 + k % 8 / 2][i / 2 + k / 8 * 2], k % 2) *
                       half_in(given[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
    }
}

// "Warp-level matrix load instruction: ldmatrix": of matrix i, lane 8 i + r gives the address of row r, and each lane gets the values
// of row group and columns 2 quad, 2 quad + 1; transposed: of rows 2 quad, 2 quad + 1 and column group.
static void load(uint32_t (&found)[4], const void *row, bool transposed) {
    uintptr_t address = (uintptr_t)row;
    if (address % 16) fprintf(stderr, "ldmatrix of an address that is no multiple of 16\n"), abort();
    auto given = exchanged((uint32_t)address, (uint32_t)(address >> 32));
    int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            int line = transposed ? quad * 2 + j : group, column = transposed ? group : quad * 2 + j;
            const uint32_t *of = given[i * 8 + line];
            const uint16_t *values = (const uint16_t *)((uintptr_t)of[1] << 32 | of[0]);
            found[i] = (j ? found[i] : 0) | (uint32_t)values[column] << j * 16;
        }
}

[[maybe_unused]] static void ldmatrix(uint32_t (&found)[4], const void *row) { load(found, row, false); }
[[maybe_unused]] static void ldmatrix_transposed(uint32_t (&found)[4], const void *row) { load(found, row, true); }

struct Copy {
    void *to;
    const void *from;
    bool inside;
    void run() const {
        if (inside) memcpy(to, from, 16);
        else memset(to, 0, 16);
    }
};
static thread_local std::vector<Copy> copies;

[[maybe_unused]] static void copy_async(void *to, const void *from, bool inside) {
    static thread_local unsigned count;
    if ((uintptr_t)to % 16 || (inside && (uintptr_t)from % 16)) fprintf(stderr, "a copy that is not aligned\n"), abort();
    Copy copy{to, from, inside};
    if ((count++ + threadIdx.x / 32) % 2) copy.run();
    else copies.push_back(copy);
}

[[maybe_unused]] static void wait_for_copies() {
    for (const Copy &copy : copies) copy.run();
    copies.clear();
}

[[maybe_unused]] static int forgotten(int x) { return x; }
[[maybe_unused]] static float exp2_of(float x) { return exp2f(x); }

// This thread runs when nobody else wants the processor: hundreds would starve what other tests wait for.
static void be_idle() {
#ifdef SCHED_IDLE
    sched_param priority = {};
    sched_setscheduler(0, SCHED_IDLE, &priority);
#endif
}

// Run a kernel in so many blocks of so many threads; `values` are its arguments, integers or addresses.
template <class T>
static T argument(int64_t value) {
    if constexpr (std::is_pointer_v<T>) return (T)value;
    else return value;
}

template <class... Types, size_t... I>
static void launch(void (*kernel)(Types...), int blocks, int threads, const int64_t *values, std::index_sequence<I...>) {
    blockDim = {(unsigned)threads, 1}, gridDim = {(unsigned)blocks, 1};
    std::barrier<> all(threads);
    everyone = &all;
    for (int i = 0; i < threads / 32; i++) warps.push_back(new Warp);
    std::vector<std::thread> running;
    for (int i = 0; i < threads; i++)
        running.emplace_back([=] {
            be_idle();
            threadIdx = {(unsigned)i, 0};
            for (int block = 0; block < blocks; block++) {
                blockIdx = {(unsigned)block, 0};
                __syncthreads();  // shared memory is of one block
                kernel(argument<Types>(values[I])...);
                wait_for_copies();
            }
        });
    for (auto &each : running) each.join();
    for (Warp *warp : warps) delete warp;
    warps.clear();
}

template <class... Types>
static void launch(void (*kernel)(Types...), int blocks, int threads, const int64_t *values) {
    launch(kernel, blocks, threads, values, std::index_sequence_for<Types...>());
}

#define LAUNCHED(kernel) \
    extern "C" void launch_##kernel(int blocks, int threads, const int64_t *values) { launch(kernel, blocks, threads, values); }

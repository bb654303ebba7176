// CUDA on the CPU, in place of kernels/instructions.h: the kernels run as they are, a fiber for each thread of a block.
//
// Blocks run one after another. A fiber runs until it waits for the others of its warp or block. The next one is chosen at random,
// the same in each run: no order hides a missing barrier. Values are in the lanes that the PTX ISA names. A copy to shared memory
// happens at once or when it is waited for, in turn, since a GPU may do either.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <setjmp.h>
#include <type_traits>
#include <ucontext.h>
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

static Index threadIdx, blockIdx, blockDim, gridDim;

static float float_of(uint16_t);  // of portable.h

struct Copy {
    void *to;
    const void *from;
    bool inside;
    void run() const {
        if (inside) memcpy(to, from, 16);
        else memset(to, 0, 16);
    }
};

// `place` is where a fiber goes on. setjmp and longjmp keep the mask of signals, which swapcontext asks the kernel for each time.
struct Fiber {
    static constexpr size_t STACK = 100'000;  // bytes; no multiple of a page: the stacks are in different lines of the cache

    std::unique_ptr<char[]> stack{new char[STACK]};
    jmp_buf place;
    Index index;
    std::vector<Copy> copies;  // that are not waited for yet
    unsigned copied, exchanges;  // numbers of its copies, and of its exchanges with a warp
};

static Fiber host;  // which launches, and runs when all others have ended a block
static Fiber *current = &host;
static std::vector<std::unique_ptr<Fiber>> fibers;
static std::vector<Fiber *> ready;  // fibers that wait for nobody
static std::minstd_rand random_number;
static const char *error;
static unsigned ended;              // fibers that have ended this block
static std::function<void()> work;  // of a fiber in a block

[[noreturn]] static void fail(const char *why) {
    error = why, current = &host;
    _longjmp(host.place, 1);
}

// Run a fiber that is ready; it may be this one.
[[gnu::noinline]] static void run_another() {
    if (ready.empty()) fail("threads wait for others that do not come");
    Fiber *before = current, *&chosen = ready[random_number() % ready.size()];
    current = std::exchange(chosen, ready.back()), ready.pop_back();
    threadIdx = current->index;
    if (!_setjmp(before->place)) _longjmp(current->place, 1);
}

struct Meeting {
    size_t size;
    std::vector<Fiber *> waiting;
    void meet() {
        waiting.push_back(current);
        if (waiting.size() == size) {
            ready.insert(ready.end(), waiting.begin(), waiting.end());
            waiting.clear();
        }
        run_another();
    }
};

struct Warp {
    Meeting meeting{32, {}};
    uint32_t given[2][32][6];  // by two in turn, so that one meeting is enough
};

static std::vector<Warp> warps;
static Meeting block;

static void __syncthreads() { block.meet(); }

// What each lane of the warp gives.
template <class... Values>
static const uint32_t (*exchanged(Values... values))[6] {
    Warp &warp = warps[threadIdx.x / 32];
    auto *given = warp.given[current->exchanges++ % 2];
    uint32_t *own = given[threadIdx.x % 32];
    ((*own++ = values), ...);
    warp.meeting.meet();
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

[[maybe_unused]] static void atomicMax(unsigned long long *place, unsigned long long value) { *place = max(*place, value); }
[[maybe_unused]] static uint32_t atomicAdd(uint32_t *place, uint32_t value) { return std::exchange(*place, *place + value); }
[[maybe_unused]] static uint32_t atomicOr(uint32_t *place, uint32_t value) { return std::exchange(*place, *place | value); }

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
    if (address % 16) fail("ldmatrix of an address that is no multiple of 16");
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

[[maybe_unused]] static void copy_async(void *to, const void *from, bool inside) {
    if ((uintptr_t)to % 16 || (inside && (uintptr_t)from % 16)) fail("a copy that is not aligned");
    Copy copy{to, from, inside};
    if ((current->copied++ + threadIdx.x / 32) % 2) copy.run();
    else current->copies.push_back(copy);
}

[[maybe_unused]] static void wait_for_copies() {
    for (const Copy &copy : current->copies) copy.run();
    current->copies.clear();
}

[[maybe_unused]] static int forgotten(int x) { return x; }
[[maybe_unused]] static float exp2_of(float x) { return exp2f(x); }

static void live() {  // as a fiber, for block after block
    for (;;) {
        run_another();
        work();
        wait_for_copies();
        if (++ended == blockDim.x) ready.push_back(&host);
    }
}

static void add_fiber() {
    fibers.push_back(std::make_unique<Fiber>());
    current = fibers.back().get();
    current->index = {(unsigned)fibers.size() - 1, 0};
    ready = {&host};
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = current->stack.get(), start.uc_stack.ss_size = Fiber::STACK;
    makecontext(&start, live, 0);
    if (!_setjmp(host.place)) setcontext(&start);
}

// Run the work in so many blocks of so many threads.
static void run_blocks(unsigned blocks, unsigned threads) {
    blockDim = {threads, 1}, gridDim = {blocks, 1};
    warps = std::vector<Warp>(threads / 32), block = {threads, {}};
    random_number.seed(1), error = nullptr;
    while (fibers.size() < threads) add_fiber();
    for (unsigned i = 0; i < threads; i++) fibers[i]->copied = fibers[i]->exchanges = 0;
    for (blockIdx = {0, 0}; blockIdx.x < blocks && !error; blockIdx.x++) {
        for (unsigned i = 0; i < threads; i++) ready.push_back(fibers[i].get());
        ended = 0;
        run_another();
    }
    if (error) fibers.clear(), ready.clear();
}

template <class T>
static T argument(int64_t value) {
    if constexpr (std::is_pointer_v<T>) return (T)value;
    else return value;
}

template <class... Types, size_t... I>
static void launch(void (*kernel)(Types...), int blocks, int threads, const int64_t *values, std::index_sequence<I...>) {
    work = [=] { kernel(argument<Types>(values[I])...); };
    run_blocks(blocks, threads);
}

// Launch a kernel; `values` are its arguments, integers or addresses. Returns what went wrong, or null.
template <class... Types>
static const char *launch(void (*kernel)(Types...), int blocks, int threads, const int64_t *values) {
    launch(kernel, blocks, threads, values, std::index_sequence_for<Types...>());
    return error;
}

#define LAUNCHED(kernel)                                                                     \
    extern "C" const char *launch_##kernel(int blocks, int threads, const int64_t *values) { \
        return launch(kernel, blocks, threads, values);                                      \
    }

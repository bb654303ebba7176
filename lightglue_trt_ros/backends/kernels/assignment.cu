// LightGlue's assignment, as `assign` and `filter_matches` of networks/lightglue.py: log-softmax of the similarities of all pairs
// over rows and over columns, log-sigmoid of the matchabilities, mutual best matches. The K x K matrix is never in global memory.
// `assignment_sums` computes it tile by tile and keeps sums of exponentials. `assignment_best` computes it again and keeps the
// best of each row and column. A tile stays in registers: rows and columns are reduced there, then over lanes, then over warps.

#include "portable.h"

constexpr int TILE = 128;                // rows and columns
constexpr int CHUNK = 64, PIECE = 16;    // bytes of a row that are staged at once, and that a thread copies or reads at once
constexpr int QUAD = LANES > 1 ? 4 : 1;  // lanes that share a row after an mma; each has two neighbours of eight values
constexpr int GROUPS = LANES / QUAD;     // lanes that share a column
constexpr int DOWN = WARPS > 1 ? 4 : 1, ACROSS = WARPS / DOWN;              // warps that share a column, and a row, of the tile
constexpr int ROWS = TILE / DOWN / GROUPS, COLUMNS = TILE / ACROSS / QUAD;  // of a thread
constexpr float MASKED = -1e4f;          // as networks/lightglue.py has it
constexpr float LOG2_E = 1.4426950408889634f;

struct Sum { float peak, total; };     // of exponentials: exp(peak) * total
struct Norm { float peak, rest; };     // of a row or column: their sum is its log-sum-exp less its log-sigmoid
struct Best { float value; int at; };  // of a row or column; NaN where it has no other value

typedef float Values[ROWS / 2][COLUMNS / 2][4];  // of a thread; 2 x 2 at each place, as mma has them

// Of a block. [0] is of the tile's rows, image 0, and [1] of its columns, image 1.
struct alignas(16) Shared {
    char staged[2][2][TILE * CHUNK];  // two chunks: one is written while the other is read
    union { Sum sums[2][DOWN][TILE]; Best best[2][DOWN][TILE]; };  // by the warps that share a line
    Norm norms[2][TILE];
    float fill[2][TILE];  // what a line has in place of its similarities, 0 where it has those
};

struct Inputs {  // projected (2, count, width), scores (count,) of both images
    int width, count;
    const float *scores0, *scores1, *detection_threshold;
};

__device__ bool is_valid(const float *scores, const float *detection_threshold, int row) {
    return scores[row] > *detection_threshold;
}

// A line is a row (SIDE 0) or a column (SIDE 1). A thread's lines, and the values of each.
template <int SIDE>
constexpr int LINES = SIDE ? COLUMNS : ROWS;

template <int SIDE>
__device__ float &value_at(Values &values, int line, int other) {
    int row = SIDE ? other : line, column = SIDE ? line : other;
    return values[row / 2][column / 2][row % 2 * 2 + column % 2];
}

// Where a thread's line is in the tile: further for a larger number.
template <int SIDE>
__device__ int place_of(int line) {
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (SIDE) return warp / DOWN * (TILE / ACROSS) + line / 2 * (2 * QUAD) + lane % QUAD * 2 + line % 2;
    return warp % DOWN * (TILE / DOWN) + line * GROUPS + lane / QUAD;
}

#ifdef __CUDACC__
#define RESIDENT __launch_bounds__(THREADS, 2)  // two blocks on a multiprocessor: one multiplies while the other reduces
#define UNROLLED _Pragma("unroll")              // a thread's values are in registers where every index is known

// Of a piece of a staged row. Its order changes every two rows, so that 8 lanes with a row each read 8 different sets of banks.
__device__ int offset_of(int row, int piece) { return row * CHUNK + (piece ^ row / 2 % 4) * PIECE; }

// Add the products of the staged chunk. Lanes give `ldmatrix` the addresses of 16 rows and 2 pieces of image 0, whose registers
// mma takes in pairs, and of 8 rows and 4 pieces of image 1. Turing has `ldmatrix`, as it has `exp2_of`.
__device__ void multiply(const char (&staged)[2][TILE * CHUNK], Values &values, half) {
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    int row = warp % DOWN * (TILE / DOWN) + lane % 16, column = warp / DOWN * (TILE / ACROSS) + lane % 8;
    const char *columns = staged[1] + offset_of(column, lane / 8);
    uint32_t left[2][ROWS / 2][4], right[4];
    UNROLLED for (int k = 0; k < 2; k++)
        UNROLLED for (int i = 0; i < ROWS / 2; i++)
            ldmatrix(left[k][i], staged[0] + offset_of(row, k * 2 + lane / 16) + i * 16 * CHUNK);
    UNROLLED for (int j = 0; j < COLUMNS / 2; j++) {
        ldmatrix(right, columns + j * 8 * CHUNK);
        UNROLLED for (int k = 0; k < 4; k++)
            UNROLLED for (int i = 0; i < ROWS / 2; i++) {
                const uint32_t *rows = left[k / 2][i] + k % 2 * 2;
                mma(values[i][j], rows[0], rows[1], right[k]);
            }
    }
}

__device__ void multiply(const char (&staged)[2][TILE * CHUNK], Values &values, float) {
    for (int piece = 0; piece < CHUNK / PIECE; piece++) {
        float4 left[ROWS];
        UNROLLED for (int i = 0; i < ROWS; i++) left[i] = *(const float4 *)(staged[0] + offset_of(place_of<0>(i), piece));
        UNROLLED for (int j = 0; j < COLUMNS; j++) {
            float4 right = *(const float4 *)(staged[1] + offset_of(place_of<1>(j), piece));
            UNROLLED for (int i = 0; i < ROWS; i++)
                value_at<0>(values, i, j) += left[i].x * right.x + left[i].y * right.y + left[i].z * right.z + left[i].w * right.w;
        }
    }
}

// A thread's pieces of the chunk at `from`, 0 outside of the matrix: 4 threads to a row, 64 rows at once.
template <class T>
__device__ void load(uint4 (&pieces)[2][2], const T *projected, const Inputs &in, int row0, int column0, int from) {
    int at = from + threadIdx.x % 4 * (int)(PIECE / sizeof(T));
    UNROLLED for (int side = 0; side < 2; side++)
        UNROLLED for (int half_way = 0; half_way < 2; half_way++) {
            int row = (side ? column0 : row0) + half_way * (TILE / 2) + threadIdx.x / 4;
            const T *place = projected + ((size_t)side * in.count + row) * in.width + at;
            pieces[side][half_way] = row < in.count && at < in.width ? *(const uint4 *)place : uint4{0, 0, 0, 0};
        }
}

template <class T>
__device__ void multiply_tile(Shared *shared, Values &values, const T *projected, const Inputs &in, int row0, int column0) {
    constexpr int STEP = CHUNK / sizeof(T);
    int offset = offset_of(threadIdx.x / 4, threadIdx.x % 4), turn = 0;
    uint4 pieces[2][2];
    load(pieces, projected, in, row0, column0, 0);
    for (int from = 0; from < in.width; from += STEP, turn ^= 1) {
        UNROLLED for (int side = 0; side < 2; side++)
            UNROLLED for (int half_way = 0; half_way < 2; half_way++)
                *(uint4 *)(shared->staged[turn][side] + half_way * (TILE / 2) * CHUNK + offset) = pieces[side][half_way];
        __syncthreads();  // also: nobody reads the chunk before this one any more
        if (from + STEP < in.width) load(pieces, projected, in, row0, column0, from + STEP);  // on its way meanwhile
        multiply(shared->staged[turn], values, T());
    }
}
#else
#define RESIDENT
#define UNROLLED

static float exp2_of(float x) { return exp2f(x); }
static float widened(float x) { return x; }
static float widened(half x) { return float_of(x); }

template <class T>
static T __shfl_xor_sync(unsigned, T x, int) { return x; }

template <class T>
static void multiply_tile(Shared *, Values &values, const T *projected, const Inputs &in, int row0, int column0) {
    static float sums[TILE][TILE];
    memset(sums, 0, sizeof sums);
    const T *left = projected + (size_t)row0 * in.width, *right = projected + ((size_t)in.count + column0) * in.width;
    int rows = min(TILE, in.count - row0), columns = min(TILE, in.count - column0);
    float others[TILE] = {};
    for (int at = 0; at < in.width; at++) {
        for (int column = 0; column < columns; column++) others[column] = widened(right[(size_t)column * in.width + at]);
        for (int row = 0; row < rows; row++) {
            float one = widened(left[(size_t)row * in.width + at]);
            for (int column = 0; column < TILE; column++) sums[row][column] += one * others[column];
        }
    }
    for (int row = 0; row < TILE; row++)
        for (int column = 0; column < TILE; column++) value_at<0>(values, row, column) = sums[row][column];
}
#endif

// Make the similarities from that row and column of the matrix on. Outside of it they add nothing to a sum of exponentials.
template <class T>
__device__ void make_tile(Shared *shared, Values &values, const T *projected, const Inputs &in, int row0, int column0) {
    for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        int side = i / TILE, row = (side ? column0 : row0) + i % TILE;
        float *fill = &shared->fill[side][i % TILE];
        if (row >= in.count) *fill = -INFINITY;
        else *fill = is_valid(side ? in.scores1 : in.scores0, in.detection_threshold, row) ? 0.f : MASKED;
    }
    multiply_tile(shared, values, projected, in, row0, column0);  // its threads meet
    float rows[ROWS], columns[COLUMNS], least = 0;
    UNROLLED for (int i = 0; i < ROWS; i++) least = fminf(least, rows[i] = shared->fill[0][place_of<0>(i)]);
    UNROLLED for (int j = 0; j < COLUMNS; j++) least = fminf(least, columns[j] = shared->fill[1][place_of<1>(j)]);
    if (least == 0) return;
    UNROLLED for (int i = 0; i < ROWS; i++)
        UNROLLED for (int j = 0; j < COLUMNS; j++) {
            float &value = value_at<0>(values, i, j), fill = fminf(rows[i], columns[j]);
            value = fill < 0 ? fill : value;
        }
}

// Over the lanes of a warp that share a line; each gets the result.
template <int SIDE, class T, class Merge>
__device__ T over_lanes(T x, Merge merge) {
    UNROLLED for (int other = SIDE ? QUAD : 1; other < (SIDE ? LANES : QUAD); other *= 2)
        x = merge(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

// The largest value of a line in the warp; NaN where it has nothing else.
template <int SIDE>
__device__ float peak_of(Values &values, int line) {
    float peak = NAN;
    UNROLLED for (int i = 0; i < LINES<1 - SIDE>; i++) peak = fmaxf(peak, value_at<SIDE>(values, line, i));
    return over_lanes<SIDE>(peak, [](float l, float r) { return fmaxf(l, r); });
}

// One of the lanes that share a line writes its result, for its warp.
template <int SIDE, class T>
__device__ void keep(T (&results)[2][DOWN][TILE], int line, T result) {
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (SIDE ? lane < QUAD : lane % QUAD == 0) results[SIDE][SIDE ? warp % DOWN : warp / DOWN][place_of<SIDE>(line)] = result;
}

__device__ int warps_of(int side) { return side ? DOWN : ACROSS; }  // that share a line

// A difference is rounded before its scaling: an error of large logits would be one of their exponentials.
__device__ float power(float value, float peak) { return exp2_of((value - (peak == -INFINITY ? 0.f : peak)) * LOG2_E); }

template <int SIDE>
__device__ void sum_lines(Shared *shared, Values &values) {
    UNROLLED for (int line = 0; line < LINES<SIDE>; line++) {
        float peak = peak_of<SIDE>(values, line), total = 0;
        UNROLLED for (int i = 0; i < LINES<1 - SIDE>; i++) total += power(value_at<SIDE>(values, line, i), peak);
        total = over_lanes<SIDE>(total, [](float l, float r) { return l + r; });
        keep<SIDE>(shared->sums, line, Sum{peak, total});  // NaN makes the total NaN
    }
}

__device__ Sum merged(const Sum *sums, int step, int count) {
    float peak = -INFINITY, total = 0;
    for (int i = 0; i < count; i++) peak = fmaxf(peak, sums[i * step].peak);
    for (int i = 0; i < count; i++) total += sums[i * step].total * power(sums[i * step].peak, peak);
    return {peak, total};
}

// sums (2, tiles, count): of each row in each column of tiles, and of each column in each row of tiles. keys (2, count) become 0.
template <class T>
__device__ void sum_tiles(const T *projected, const Inputs &in, Sum *sums, uint64_t *keys) {
    SHARED Shared shared;
    int tiles = (in.count + TILE - 1) / TILE;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 2 * in.count; i += gridDim.x * blockDim.x) keys[i] = 0;
    for (int tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
        int row0 = tile / tiles * TILE, column0 = tile % tiles * TILE;
        Values values = {};
        make_tile(&shared, values, projected, in, row0, column0);
        sum_lines<0>(&shared, values);
        sum_lines<1>(&shared, values);
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
            int side = i / TILE, row = (side ? column0 : row0) + i % TILE, across = side ? tile / tiles : tile % tiles;
            Sum sum = merged(&shared.sums[side][0][i % TILE], TILE, warps_of(side));
            if (row < in.count) sums[(side * tiles + across) * in.count + row] = sum;
        }
    }
}

__device__ float log_sigmoid(float x) { return fminf(x, 0.f) - log1pf(expf(-fabsf(x))); }

// Make the norms of the tile's rows and columns, NaN outside of the matrix.
__device__ void make_norms(Shared *shared, const Inputs &in, const float *matchability, const Sum *sums, int tiles, int row0,
                           int column0) {
    for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        int side = i / TILE, row = (side ? column0 : row0) + i % TILE;
        Norm *norm = &shared->norms[side][i % TILE];
        *norm = {NAN, NAN};
        if (row >= in.count) continue;
        Sum sum = merged(sums + side * tiles * in.count + row, in.count, tiles);
        *norm = {sum.peak, logf(sum.total) - log_sigmoid(matchability[side * in.count + row])};
    }
}

// Larger for larger values, and for smaller indices of the same value; 0 for NaN.
__device__ uint64_t key_of(float value, int index) {
    uint32_t bits = bits_of(value + 0.f), ordered = bits >> 31 ? ~bits : bits | 0x80000000u;  // -0 + 0 is 0
    return value == value ? (uint64_t)ordered << 32 | ~(uint32_t)index : 0;
}

__device__ int index_of(uint64_t key) { return (int)~(uint32_t)key; }

__device__ float value_of(uint64_t key) {
    uint32_t ordered = (uint32_t)(key >> 32);
    return of_bits(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

// From similarities to logarithms of scores. Peak and rest are subtracted one by one: a peak may be 100, and their sum's rounding
// would be an error of 1e-5 of the score.
__device__ void normalize(const Shared *shared, Values &values) {
    Norm rows[ROWS];
    UNROLLED for (int i = 0; i < ROWS; i++) rows[i] = shared->norms[0][place_of<0>(i)];
    UNROLLED for (int j = 0; j < COLUMNS; j++) {
        Norm column = shared->norms[1][place_of<1>(j)];
        UNROLLED for (int i = 0; i < ROWS; i++) {
            float &value = value_at<0>(values, i, j);
            value = (value - rows[i].peak - rows[i].rest) + (value - column.peak - column.rest);
        }
    }
}

// The largest value first, then where it is first.
template <int SIDE>
__device__ void find_lines(Shared *shared, Values &values) {
    UNROLLED for (int line = 0; line < LINES<SIDE>; line++) {
        float peak = peak_of<SIDE>(values, line);
        int found = -1;
        UNROLLED for (int i = LINES<1 - SIDE> - 1; i >= 0; i--)
            if (value_at<SIDE>(values, line, i) == peak) found = i;
        int place = over_lanes<SIDE>(found < 0 ? TILE : place_of<1 - SIDE>(found), [](int l, int r) { return min(l, r); });
        keep<SIDE>(shared->best, line, Best{peak, place});
    }
}

// keys (2, count): of the best of each row and of each column.
template <class T>
__device__ void find_best(const T *projected, const Inputs &in, const float *matchability, const Sum *sums, uint64_t *keys) {
    SHARED Shared shared;
    int tiles = (in.count + TILE - 1) / TILE;
    for (int tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
        int row0 = tile / tiles * TILE, column0 = tile % tiles * TILE;
        Values values = {};
        make_norms(&shared, in, matchability, sums, tiles, row0, column0);
        make_tile(&shared, values, projected, in, row0, column0);
        normalize(&shared, values);
        find_lines<0>(&shared, values);
        find_lines<1>(&shared, values);
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
            int side = i / TILE, row = (side ? column0 : row0) + i % TILE, other0 = side ? row0 : column0;
            uint64_t key = 0;
            for (int warp = 0; warp < warps_of(side); warp++) {
                Best best = shared.best[side][warp][i % TILE];
                key = max(key, key_of(best.value, other0 + best.at));
            }
            if (row < in.count) raise_to(keys + side * in.count + row, key);
        }
    }
}

KERNEL RESIDENT assignment_sums_fp16(const half *projected, int width, int count, const float *scores0, const float *scores1,
                                     const float *detection_threshold, Sum *sums, uint64_t *keys) {
    sum_tiles(projected, {width, count, scores0, scores1, detection_threshold}, sums, keys);
}

KERNEL RESIDENT assignment_sums_fp32(const float *projected, int width, int count, const float *scores0, const float *scores1,
                                     const float *detection_threshold, Sum *sums, uint64_t *keys) {
    sum_tiles(projected, {width, count, scores0, scores1, detection_threshold}, sums, keys);
}

KERNEL RESIDENT assignment_best_fp16(const half *projected, int width, int count, const float *scores0, const float *scores1,
                                     const float *detection_threshold, const float *matchability, const Sum *sums, uint64_t *keys) {
    find_best(projected, {width, count, scores0, scores1, detection_threshold}, matchability, sums, keys);
}

KERNEL RESIDENT assignment_best_fp32(const float *projected, int width, int count, const float *scores0, const float *scores1,
                                     const float *detection_threshold, const float *matchability, const Sum *sums, uint64_t *keys) {
    find_best(projected, {width, count, scores0, scores1, detection_threshold}, matchability, sums, keys);
}

// matches (count,): the row of image 1 or -1; found (count,): its score or 0. `thousandths` are the least score of a match.
KERNEL assignment_matches(const float *scores0, const float *scores1, const float *detection_threshold, const float *match_threshold,
                          int thousandths, int count, const uint64_t *keys, int *matches, float *found) {
    float threshold = fmaxf(*match_threshold, thousandths / 1000.f);
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < count; row += gridDim.x * blockDim.x) {
        int match = keys[row] ? index_of(keys[row]) : -1;
        float score = 0;
        if (match >= 0 && index_of(keys[count + match]) == row && is_valid(scores0, detection_threshold, row) &&
            is_valid(scores1, detection_threshold, match))
            score = expf(value_of(keys[row]));
        bool kept = score > threshold;
        matches[row] = kept ? match : -1, found[row] = kept ? score : 0.f;
    }
}

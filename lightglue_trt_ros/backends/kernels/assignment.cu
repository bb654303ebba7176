// LightGlue's assignment, as `assign` and `filter_matches` of networks/lightglue.py: log-softmax of the similarities of all pairs
// over rows and over columns, log-sigmoid of the matchabilities, mutual best matches. The K x K matrix is never in global memory.
// `assignment_sums` computes it tile by tile and keeps sums of exponentials. `assignment_best` computes it again and keeps the
// best of each row and column.

#include "portable.h"

constexpr int TILE = 64;                        // rows and columns
constexpr int PARTS = 4, PART = TILE / PARTS;   // a thread reduces a part of a row or column
constexpr int PITCH = TILE + 7;                 // of the tile's rows: no bank conflict along columns, two-way ones after an mma
constexpr int CHUNK = 128, SPACE = CHUNK + 32;  // bytes of a staged row, and to the next one: an mma reads without bank conflicts
constexpr float MASKED = -1e4f;                 // as networks/lightglue.py has it

struct Sum { float peak, total; };  // of exponentials: exp(peak) * total
struct Norm { float peak, rest; };  // of a row or column: their sum is its log-sum-exp less its log-sigmoid

struct alignas(16) Shared {  // of a block; [0] is of the tile's rows, image 0, and [1] of its columns, image 1
    union { char staged[2][TILE * SPACE]; float tile[TILE * PITCH]; };
    union { Sum sums[2][PARTS][TILE]; uint64_t keys[2][PARTS][TILE]; };
    Norm norms[2][TILE];
    bool valid[2][TILE];
};

struct Inputs {  // projected (2, count, width), scores (count,) of both images
    int width, count;
    const float *scores0, *scores1, *detection_threshold;
};

__device__ bool is_valid(const float *scores, const float *detection_threshold, int row) {
    return scores[row] > *detection_threshold;
}

// A tile's value: outside of the matrix it adds nothing to a sum of exponentials.
__device__ float masked(const Shared *shared, float similarity, int row, int column, int rows, int columns) {
    if (row >= rows || column >= columns) return -INFINITY;
    return shared->valid[0][row] && shared->valid[1][column] ? similarity : MASKED;
}

#ifdef __CUDACC__
#define RESIDENT __launch_bounds__(THREADS, 3)  // three blocks on a multiprocessor; registers for four would spill

// Where the 16 sums [i][j] of a thread are in the tile. FP16: as the fragments of mma have them, each i is 8 columns further.
__device__ int row_of(half, int, int j) { return threadIdx.x / LANES % 4 * 16 + j / 2 * 8 + threadIdx.x % LANES / 4; }
__device__ int column_of(half, int i, int j) { return threadIdx.x / LANES / 4 * 32 + i * 8 + threadIdx.x % 4 * 2 + j % 2; }
__device__ int row_of(float, int i, int) { return threadIdx.x / 16 + i * 16; }
__device__ int column_of(float, int, int j) { return threadIdx.x % 16 + j * 16; }

// Add the products of the staged chunk. A thread takes 4 neighbours of 16 where mma has 2 and 2: the order of a sum is free.
__device__ void multiply(const Shared *shared, float (&sums)[4][4], half) {
    int warp = threadIdx.x / LANES, group = threadIdx.x % LANES / 4, quad = threadIdx.x % 4;
    const char *left = shared->staged[0] + (warp % 4 * 16 + group) * SPACE + quad * 8;
    const char *right = shared->staged[1] + (warp / 4 * 32 + group) * SPACE + quad * 8;
    for (int at = 0; at < CHUNK; at += 32) {
        uint2 upper = *(const uint2 *)(left + at), lower = *(const uint2 *)(left + 8 * SPACE + at);
        for (int i = 0; i < 4; i++) {
            uint2 other = *(const uint2 *)(right + i * 8 * SPACE + at);
            mma(sums[i], upper.x, lower.x, other.x);
            mma(sums[i], upper.y, lower.y, other.y);
        }
    }
}

__device__ void multiply(const Shared *shared, float (&sums)[4][4], float) {
    const char *left = shared->staged[0] + threadIdx.x / 16 * SPACE, *right = shared->staged[1] + threadIdx.x % 16 * SPACE;
    for (int at = 0; at < CHUNK; at += 16) {
        float4 others[4];
        for (int j = 0; j < 4; j++) others[j] = *(const float4 *)(right + j * 16 * SPACE + at);
        for (int i = 0; i < 4; i++) {
            float4 one = *(const float4 *)(left + i * 16 * SPACE + at);
            for (int j = 0; j < 4; j++)
                sums[i][j] += one.x * others[j].x + one.y * others[j].y + one.z * others[j].z + one.w * others[j].w;
        }
    }
}

// A thread's pieces of the chunk at `from`, 0 outside of the matrix: 8 threads to a row, 32 rows at once.
template <class T>
__device__ void load(uint4 (&pieces)[2][2], const T *projected, const Inputs &in, int row0, int column0, int from) {
    int at = from + threadIdx.x % 8 * (int)(16 / sizeof(T));
    for (int side = 0; side < 2; side++)
        for (int half_way = 0; half_way < 2; half_way++) {
            int row = (side ? column0 : row0) + half_way * 32 + threadIdx.x / 8;
            const T *place = projected + ((size_t)side * in.count + row) * in.width + at;
            pieces[side][half_way] = row < in.count && at < in.width ? *(const uint4 *)place : uint4{0, 0, 0, 0};
        }
}

template <class T>
__device__ void similarities(Shared *shared, const T *projected, const Inputs &in, int row0, int column0) {
    constexpr int COLUMNS = CHUNK / sizeof(T);
    char *place = shared->staged[0] + threadIdx.x / 8 * SPACE + threadIdx.x % 8 * 16;
    float sums[4][4] = {};
    uint4 pieces[2][2];
    load(pieces, projected, in, row0, column0, 0);
    for (int from = 0; from < in.width; from += COLUMNS) {
        __syncthreads();  // nobody reads what was here
        for (int side = 0; side < 2; side++)
            for (int half_way = 0; half_way < 2; half_way++)
                *(uint4 *)(place + side * TILE * SPACE + half_way * 32 * SPACE) = pieces[side][half_way];
        __syncthreads();
        if (from + COLUMNS < in.width) load(pieces, projected, in, row0, column0, from + COLUMNS);  // on its way meanwhile
        multiply(shared, sums, T());
    }
    __syncthreads();
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            int row = row_of(T(), i, j), column = column_of(T(), i, j);
            shared->tile[row * PITCH + column] = masked(shared, sums[i][j], row, column, in.count - row0, in.count - column0);
        }
}
#else
#define RESIDENT

static float widened(float x) { return x; }
static float widened(half x) { return float_of(x); }

template <class T>
static void similarities(Shared *shared, const T *projected, const Inputs &in, int row0, int column0) {
    for (float &sum : shared->tile) sum = 0;
    const T *left = projected + (size_t)row0 * in.width, *right = projected + ((size_t)in.count + column0) * in.width;
    int rows = min(TILE, in.count - row0), columns = min(TILE, in.count - column0);
    float others[TILE] = {};
    for (int at = 0; at < in.width; at++) {
        for (int column = 0; column < columns; column++) others[column] = widened(right[(size_t)column * in.width + at]);
        for (int row = 0; row < rows; row++) {
            float one = widened(left[(size_t)row * in.width + at]), *sums = shared->tile + row * PITCH;
            for (int column = 0; column < TILE; column++) sums[column] += one * others[column];
        }
    }
    for (int row = 0; row < TILE; row++)
        for (int column = 0; column < TILE; column++) {
            float &value = shared->tile[row * PITCH + column];
            value = masked(shared, value, row, column, rows, columns);
        }
}
#endif

// Make the tile of similarities from that row and column of the matrix on.
template <class T>
__device__ void make_tile(Shared *shared, const T *projected, const Inputs &in, int row0, int column0) {
    for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        int side = i / TILE, row = (side ? column0 : row0) + i % TILE;
        shared->valid[side][i % TILE] = row < in.count && is_valid(side ? in.scores1 : in.scores0, in.detection_threshold, row);
    }
    __syncthreads();
    similarities(shared, projected, in, row0, column0);
    __syncthreads();
}

__device__ Sum merged(Sum l, Sum r) {
    float peak = fmaxf(l.peak, r.peak), from = peak == -INFINITY ? 0.f : peak;
    return {peak, l.total * expf(l.peak - from) + r.total * expf(r.peak - from)};
}

// Of PART values; NaN makes the total NaN.
__device__ Sum sum_of(const float *values, int step) {
    float peak = -INFINITY, total = 0;
    for (int i = 0; i < PART; i++) peak = fmaxf(peak, values[i * step]);
    float from = peak == -INFINITY ? 0.f : peak;
    for (int i = 0; i < PART; i++) total += expf(values[i * step] - from);
    return {peak, total};
}

__device__ Sum whole(const Shared *shared, int side, int line) {
    Sum sum = shared->sums[side][0][line];
    for (int part = 1; part < PARTS; part++) sum = merged(sum, shared->sums[side][part][line]);
    return sum;
}

// sums (2, tiles, count): of each row in each column of tiles, and of each column in each row of tiles. keys (2, count) become 0.
template <class T>
__device__ void sum_tiles(const T *projected, const Inputs &in, Sum *sums, uint64_t *keys) {
    SHARED Shared shared;
    int tiles = (in.count + TILE - 1) / TILE;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 2 * in.count; i += gridDim.x * blockDim.x) keys[i] = 0;
    for (int tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
        int row0 = tile / tiles * TILE, column0 = tile % tiles * TILE;
        make_tile(&shared, projected, in, row0, column0);
        for (int i = threadIdx.x; i < 2 * PARTS * TILE; i += THREADS) {
            int side = i / (PARTS * TILE), part = i / TILE % PARTS, line = i % TILE;
            const float *values = shared.tile + (side ? part * PART * PITCH + line : line * PITCH + part * PART);
            shared.sums[side][part][line] = sum_of(values, side ? PITCH : 1);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
            int side = i / TILE, row = (side ? column0 : row0) + i % TILE, across = side ? tile / tiles : tile % tiles;
            if (row < in.count) sums[(side * tiles + across) * in.count + row] = whole(&shared, side, i % TILE);
        }
    }
}

__device__ float log_sigmoid(float x) { return fminf(x, 0.f) - log1pf(expf(-fabsf(x))); }

// Make the norms of the tile's rows and columns, NaN outside of the matrix.
__device__ void make_norms(Shared *shared, const Inputs &in, const float *matchability, const Sum *sums, int tiles, int row0,
                           int column0) {
    for (int i = threadIdx.x; i < 2 * PARTS * TILE; i += THREADS) {
        int side = i / (PARTS * TILE), part = i / TILE % PARTS, row = (side ? column0 : row0) + i % TILE;
        Sum sum = {-INFINITY, 0};
        for (int across = part; row < in.count && across < tiles; across += PARTS)
            sum = merged(sum, sums[(side * tiles + across) * in.count + row]);
        shared->sums[side][part][i % TILE] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        int side = i / TILE, row = (side ? column0 : row0) + i % TILE;
        Sum sum = whole(shared, side, i % TILE);
        Norm *norm = &shared->norms[side][i % TILE];
        *norm = {NAN, NAN};
        if (row < in.count) *norm = {sum.peak, logf(sum.total) - log_sigmoid(matchability[side * in.count + row])};
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

__device__ void raise_to(uint64_t *place, uint64_t key) {
#ifdef __CUDACC__
    atomicMax((unsigned long long *)place, (unsigned long long)key);
#else
    *place = max(*place, key);
#endif
}

// keys (2, count): of the best of each row and of each column.
template <class T>
__device__ void find_best(const T *projected, const Inputs &in, const float *matchability, const Sum *sums, uint64_t *keys) {
    SHARED Shared shared;
    int tiles = (in.count + TILE - 1) / TILE;
    for (int tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
        int row0 = tile / tiles * TILE, column0 = tile % tiles * TILE;
        __syncthreads();  // nobody reads the keys of the tile before
        make_norms(&shared, in, matchability, sums, tiles, row0, column0);
        make_tile(&shared, projected, in, row0, column0);
        for (int i = threadIdx.x; i < 2 * PARTS * TILE; i += THREADS) {
            int side = i / (PARTS * TILE), part = i / TILE % PARTS, line = i % TILE, other0 = side ? row0 : column0;
            Norm own = shared.norms[side][line];
            uint64_t best = 0;
            for (int across = part * PART; across < (part + 1) * PART; across++) {
                float value = shared.tile[side ? across * PITCH + line : line * PITCH + across];
                Norm other = shared.norms[1 - side][across];
                best = max(best, key_of((value - own.peak - own.rest) + (value - other.peak - other.rest), other0 + across));
            }
            shared.keys[side][part][line] = best;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * TILE; i += THREADS) {
            int side = i / TILE, row = (side ? column0 : row0) + i % TILE;
            uint64_t best = 0;
            for (int part = 0; part < PARTS; part++) best = max(best, shared.keys[side][part][i % TILE]);
            if (row < in.count) raise_to(keys + side * in.count + row, best);
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

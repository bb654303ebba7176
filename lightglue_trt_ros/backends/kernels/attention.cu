// LightGlue's attention, as `rotate` and `attend` of networks/lightglue.py, on the projections as their matrix product leaves them:
// no transposed copies, and the result is the input of the next product. FP16 with sums in FP32; a head has 64 channels.
//
// `attend` is FlashAttention (Dao: FlashAttention-2, 2023): softmax and weighted sum go along tile by tile, so that the K x K matrix
// is in registers only. Weights are rounded to FP16 for the product with the values; their sum is of the FP32 ones.

#include "portable.h"

constexpr int HEAD = 64;  // channels

__device__ float low(uint32_t pair) { return float_of((half)pair); }
__device__ float high(uint32_t pair) { return float_of((half)(pair >> 16)); }

// x * cosine + sign * other * sine
__device__ uint32_t rotated(uint32_t x, uint32_t other, uint32_t cosine, uint32_t sine, float sign) {
    return halves_of(low(x) * low(cosine) + sign * low(other) * low(sine), high(x) * high(cosine) + sign * high(other) * high(sine));
}

__device__ uint4 rotated(uint4 x, uint4 other, uint4 cosine, uint4 sine, float sign) {
    return {rotated(x.x, other.x, cosine.x, sine.x, sign), rotated(x.y, other.y, cosine.y, sine.y, sign),
            rotated(x.z, other.z, cosine.z, sine.z, sign), rotated(x.w, other.w, cosine.w, sine.w, sign)};
}

// Rotate queries and keys in place: projected (2, count, columns) begins with `width` channels of each; cosines, sines (2, count, 64).
// A thread has 8 channels of a head's first half, and those that they are rotated with, of the second.
KERNEL rotate(int count, int width, int columns, half *projected, const half *cosines, const half *sines) {
    constexpr int EACH = 8, HALF = HEAD / 2, PIECES = HALF / EACH;
    int pieces = 2 * width / HEAD * PIECES;  // of a row
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 2 * count * pieces; i += gridDim.x * blockDim.x) {
        int row = i / pieces, head = i % pieces / PIECES, at = i % PIECES * EACH;
        uint4 *places = (uint4 *)(projected + (size_t)row * columns + head * HEAD + at);
        const uint4 *cosine = (const uint4 *)(cosines + (size_t)row * HEAD + at), *sine = (const uint4 *)(sines + (size_t)row * HEAD + at);
        uint4 first = places[0], second = places[PIECES];
        places[0] = rotated(first, second, cosine[0], sine[0], -1.f);
        places[PIECES] = rotated(second, first, cosine[PIECES], sine[PIECES], 1.f);
    }
}

#ifdef __CUDACC__
constexpr int TILE = 64;              // queries of a block, 16 to a warp, and keys that it takes at once
constexpr int ROW = HEAD * 2;         // bytes
constexpr int PIECES = ROW / 16;      // of a row; what a thread copies at once
constexpr int BLOCK = 128;            // threads
constexpr int STEP = BLOCK / PIECES;  // rows that the block copies at once
constexpr float LOG2_E = 1.4426950408889634f;

struct alignas(128) Stage { char keys[TILE * ROW], values[TILE * ROW]; };

// Of a row's piece in a stage: ldmatrix reads the same piece of 8 rows without bank conflicts.
__device__ int place(int row, int piece) { return row * ROW + (piece ^ row % 8) * 16; }

// Begin to copy a tile of keys and values. `keys` is where the piece is that this thread copies first; rows from `rows` on become 0.
__device__ void fetch(Stage *stage, const half *projected, unsigned keys, int values_apart, int rows, int columns) {
    int line = threadIdx.x / PIECES, to = place(line, threadIdx.x % PIECES);
    for (int i = 0; i < TILE / STEP; i++) {
        unsigned piece = keys + i * STEP * columns;
        copy_async(stage->keys + to + i * STEP * ROW, projected + piece, line + i * STEP < rows);
        copy_async(stage->values + to + i * STEP * ROW, projected + (piece + values_apart), line + i * STEP < rows);
    }
}

__device__ float over_quad(float x, float (*merge)(float, float)) {  // the four lanes that have a row of an mma's result
    for (int other = 1; other < 4; other *= 2) x = merge(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

__device__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ float added(float a, float b) { return a + b; }

struct Work { int image, head, first; };  // of a block, with the first of its queries

__device__ Work work_of(int block, int count, int width) {
    int tiles = (count + TILE - 1) / TILE, heads = width / HEAD;
    return {block / tiles / heads, block / tiles % heads, block % tiles * TILE};
}

__device__ int row_of(Work work, int thread) { return work.first + thread / LANES * 16 + thread % LANES / 4; }  // and 8 further

// attended (2, count, 2 width) becomes [state | context]: state (2, count, width) is copied, and the context of each head is that of
// queries, keys and values in projected (2, count, columns), which begin at columns 0, key_at and value_at; with `swap` keys and
// values are the other image's. A block for each image, head and tile of queries, in this order.
//
// [i][j] of a thread is what the fragments of mma have: row lane / 4 + j / 2 * 8 of its warp, column i * 8 + quad * 2 + j % 2.
KERNEL __launch_bounds__(BLOCK, 4) attend(int count, int width, int columns, int key_at, int value_at, int swap,
                                          const half *projected, const half *state, half *attended) {
    __shared__ Stage stages[2];
    auto [image, head, first] = work_of(blockIdx.x, count, width);
    int line = threadIdx.x / PIECES, channel = threadIdx.x % PIECES * 8;  // of what this thread copies first
    unsigned keys = ((image ^ swap) * count + line) * columns + head * HEAD + key_at + channel;
    fetch(&stages[0], projected, keys, value_at - key_at, count, columns);

    for (int i = 0; i < TILE / STEP; i++) {
        int at = first + line + i * STEP;
        const half *from = state + (size_t)(image * count + at) * width + head * HEAD + channel;
        half *to = attended + (size_t)(image * count + at) * 2 * width + head * HEAD + channel;
        if (at < count) *(uint4 *)to = *(const uint4 *)from;
    }

    int lane = threadIdx.x % LANES, quad = lane % 4, row = row_of({image, head, first}, threadIdx.x);
    const half *queries = projected + (size_t)(image * count + row) * columns + head * HEAD + quad * 2;
    uint32_t query[4][4];  // of 16 channels each
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const half *pair = queries + j % 2 * 8 * columns + i * 16 + j / 2 * 8;
            query[i][j] = row + j % 2 * 8 < count ? *(const uint32_t *)pair : 0;
        }

    int key_place = place(lane % 8, lane / 8), value_place = place(lane % 16, lane / 16);  // of the rows that ldmatrix takes here
    float sums[8][4] = {}, peaks[2] = {-INFINITY, -INFINITY}, totals[2] = {};
    for (int from = 0; from < count; from += TILE) {
        const Stage *stage = &stages[from / TILE % 2];
        wait_for_copies();
        __syncthreads();  // all copies are here, and nobody reads the other stage
        keys += TILE * columns;
        if (from + TILE < count) fetch(&stages[(from / TILE + 1) % 2], projected, keys, value_at - key_at, count - from - TILE, columns);

        float logits[8][4] = {};
        for (int i = 0; i < 8; i++)
            for (int part = 0; part < 2; part++) {  // of the channels
                uint32_t found[4];
                ldmatrix(found, stage->keys + i * 8 * ROW + (key_place ^ part * 64));
                mma(logits[i], query[part * 2], found[0], found[1]);
                mma(logits[i], query[part * 2 + 1], found[2], found[3]);
            }
        if (count - from < TILE)
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 4; j++)
                    if (i * 8 + quad * 2 + j % 2 >= count - from) logits[i][j] = -INFINITY;

        for (int side = 0; side < 2; side++) {  // of the thread's two rows
            float peak = peaks[side];
            for (int i = 0; i < 8; i++) peak = fmaxf(peak, fmaxf(logits[i][side * 2], logits[i][side * 2 + 1]));
            peak = over_quad(peak, larger);
            float base = peak == -INFINITY ? 0.f : peak * LOG2_E, scale = exp2_of(fmaf(peaks[side], LOG2_E, -base));
            peaks[side] = peak, totals[side] *= scale;
            for (int i = 0; i < 8; i++) {
                float *logit = &logits[i][side * 2], *sum = &sums[i][side * 2];
                for (int j = 0; j < 2; j++) sum[j] *= scale, logit[j] = exp2_of(fmaf(logit[j], LOG2_E, -base));
                totals[side] += logit[0] + logit[1];
            }
        }

        for (int i = 0; i < 4; i++) {  // of 16 keys each
            const float(&left)[4] = logits[i * 2], (&right)[4] = logits[i * 2 + 1];
            uint32_t weights[4] = {halves_of(left[0], left[1]), halves_of(left[2], left[3]), halves_of(right[0], right[1]),
                                   halves_of(right[2], right[3])};
            for (int j = 0; j < 4; j++) {
                uint32_t found[4];
                ldmatrix_transposed(found, stage->values + i * 16 * ROW + (value_place ^ j * 32));
                mma(sums[j * 2], weights, found[0], found[1]);
                mma(sums[j * 2 + 1], weights, found[2], found[3]);
            }
        }
    }

    int thread = forgotten(threadIdx.x);  // the place of the result, kept through the loop, would make its registers spill
    Work work = work_of(forgotten(blockIdx.x), count, width);
    int at = row_of(work, thread);
    half *context = attended + (size_t)(work.image * count + at) * 2 * width + width + work.head * HEAD + thread % 4 * 2;
    for (int side = 0; side < 2; side++) {
        float scale = 1 / over_quad(totals[side], added);
        for (int i = 0; at + side * 8 < count && i < 8; i++)
            *(uint32_t *)(context + side * 16 * width + i * 8) = halves_of(sums[i][side * 2] * scale, sums[i][side * 2 + 1] * scale);
    }
}
#else
KERNEL attend(int count, int width, int columns, int key_at, int value_at, int swap, const half *projected, const half *state,
              half *attended) {
    std::vector<float> keys(count * HEAD), values(count * HEAD), weights(count);
    for (int image = 0; image < 2; image++)
        for (int at = 0; at < width; at += HEAD) {  // a head
            for (int i = 0; i < count * HEAD; i++) {
                const half *place = projected + ((size_t)(image ^ swap) * count + i / HEAD) * columns + at + i % HEAD;
                keys[i] = float_of(place[key_at]), values[i] = float_of(place[value_at]);
            }
            for (int row = image * count; row < (image + 1) * count; row++) {
                float query[HEAD], context[HEAD] = {}, peak = -INFINITY, total = 0;
                for (int i = 0; i < HEAD; i++) query[i] = float_of(projected[(size_t)row * columns + at + i]);
                for (int key = 0; key < count; key++) {
                    float parts[4] = {};  // added at once
                    for (int i = 0; i < HEAD; i++) parts[i % 4] += query[i] * keys[key * HEAD + i];
                    weights[key] = parts[0] + parts[1] + parts[2] + parts[3];
                    peak = fmaxf(peak, weights[key]);
                }
                for (int key = 0; key < count; key++) {
                    float weight = expf(weights[key] - peak);
                    total += weight;
                    for (int i = 0; i < HEAD; i++) context[i] += weight * values[key * HEAD + i];
                }
                half *place = attended + (size_t)row * 2 * width + at;
                memcpy(place, state + (size_t)row * width + at, HEAD * sizeof(half));
                for (int i = 0; i < HEAD; i++) place[width + i] = half_of(context[i] / total);
            }
        }
}
#endif

// SuperPoint's keypoints from its two maps, as networks/superpoint.py selects and describes them, in FP32. Four kernels, in the order
// of this file. A key is a keypoint: its score's bits, then its place's, inverted, so that of equal scores the first place wins.

#include "portable.h"

constexpr int CELL = 8, RADIUS = 4, BORDER = 4, BLOCK = 4, REFINE_RADIUS = 2;  // as networks/superpoint.py has them
constexpr int CLASSES = CELL * CELL + 1, PLACES = BLOCK * BLOCK;
constexpr int CHANNELS = 256;                                // of descriptors, at most
constexpr int TILE = 32;                                     // pixels to a side: one word of bits
constexpr int HALO = 5 * RADIUS, SIDE = TILE + 2 * HALO;     // five windows reach into a pixel's suppression
constexpr int RIM = HALO + RADIUS, ROWS = TILE + 2 * RIM;    // and one more into its mask
constexpr int WORDS = 3;                                     // of a row of bits; the tile's columns are the middle one
constexpr int PITCH = SIDE + 4, ALONG = TILE + 8 * RADIUS + 4;  // no bank conflict where 8 lanes read 4 floats each of 8 rows
constexpr int RUN = 2 * RADIUS;                              // maxima that a thread finds at once
constexpr int CHOOSERS = 1024, DIGIT = 11, BINS = 1 << DIGIT, GROUP = 32;

struct alignas(16) Four { float at[4]; };

struct Tile {  // rows and columns count from the tile's first pixel, those around it are negative or beyond
    alignas(16) float scores[SIDE * PITCH];
    alignas(16) float along[SIDE * ALONG];  // maxima along rows
    uint32_t masked[ROWS * WORDS], near[ROWS * WORDS], maxima[ROWS * WORDS];
    uint64_t keys[TILE / BLOCK * (TILE / BLOCK)];
    uint32_t found, first;
};

__device__ float widened(float x) { return x; }
__device__ float widened(half x) { return float_of(x); }
__device__ void narrow(float x, float *to) { *to = x; }
__device__ void narrow(float x, half *to) { *to = half_of(x); }

// Softmax over each cell's 65 logits -> scores (height, width); 0 in a cell that is not finite. The candidates' count becomes 0.
template <class T>
__device__ void score(const T *logits, int channel_step, int cell_step, int height, int width, float *scores, uint32_t *count) {
    if (!blockIdx.x && !threadIdx.x) *count = 0;
    int columns = width / CELL;
    for (int cell = blockIdx.x * blockDim.x + threadIdx.x; cell < height / CELL * columns; cell += gridDim.x * blockDim.x) {
        const T *from = logits + (size_t)cell * cell_step;
        float values[CLASSES], peak = -INFINITY, total = 0;
        for (int i = 0; i < CLASSES; i++) {
            values[i] = widened(from[(size_t)i * channel_step]);
            peak = fmaxf(peak, values[i]);
        }
        for (int i = 0; i < CLASSES; i++) {
            values[i] = expf(values[i] - peak);
            total += values[i];
        }
        bool finite = isfinite(total);
        float share = 1 / total, *to = scores + (size_t)(cell / columns) * CELL * width + cell % columns * CELL;
        for (int i = 0; i < CELL * CELL; i += 4) {
            Four four;
            for (int j = 0; j < 4; j++) four.at[j] = finite ? values[i + j] * share : 0.f;
            *(Four *)(to + i / CELL * width + i % CELL) = four;
        }
    }
}

KERNEL score_pixels_fp16(const half *logits, int channel_step, int cell_step, int height, int width, float *scores, uint32_t *count) {
    score(logits, channel_step, cell_step, height, width, scores, count);
}

KERNEL score_pixels_fp32(const float *logits, int channel_step, int cell_step, int height, int width, float *scores, uint32_t *count) {
    score(logits, channel_step, cell_step, height, width, scores, count);
}

__device__ float &score_at(Tile *tile, int row, int column) { return tile->scores[(row + HALO) * PITCH + column + HALO]; }

__device__ bool is_set(const uint32_t *bits, int row, int column) {
    return bits[(row + RIM) * WORDS + (column + 32) / 32] >> (column & 31) & 1;
}

__device__ bool is_peak(const float *scores, int height, int width, int y, int x) {  // of the 3 x 3 pixels around it
    float score = scores[y * width + x];
    for (int v = max(y - 1, 0); v <= min(y + 1, height - 1); v++)
        for (int u = max(x - 1, 0); u <= min(x + 1, width - 1); u++)
            if (scores[v * width + u] > score) return false;
    return true;
}

// near: whether one of the bits is within RADIUS, for the tile and AROUND pixels around it.
template <int AROUND>
__device__ void spread(const uint32_t *bits, uint32_t *near) {
    for (int i = threadIdx.x; i < (TILE + 2 * AROUND) * WORDS; i += THREADS) {
        int word = i % WORDS;
        const uint32_t *place = bits + (RIM - AROUND) * WORDS + i;
        uint32_t left = 0, here = 0, right = 0;
        for (int row = -RADIUS; row <= RADIUS; row++) {
            here |= place[row * WORDS];
            if (word > 0) left |= place[row * WORDS - 1];
            if (word < WORDS - 1) right |= place[row * WORDS + 1];
        }
        uint32_t found = here;
        for (int by = 1; by <= RADIUS; by++) found |= here << by | here >> by | left >> (32 - by) | right << (32 - by);
        near[(RIM - AROUND) * WORDS + i] = found;
    }
}

// Scores of the tile that keypoints may be made of, as `mask_scores`; 0 outside of the image, which is no maximum.
__device__ void load(Tile *tile, const float *scores, const uint32_t *mask, int height, int width, int row0, int column0) {
    for (int i = threadIdx.x; i < ROWS * WORDS; i += THREADS) {
        int y = row0 - RIM + i / WORDS, x = column0 + (i % WORDS - 1) * 32;
        uint32_t bits = 0;
        for (int j = 0; j < 32; j += 4)
            if (y >= 0 && y < height && x + j >= 0 && x + j < width) {
                uint32_t four = mask[(y * width + x + j) / 4];
                for (int k = 0; k < 4; k++) bits |= (four >> 8 * k & 255 ? 0u : 1u) << (j + k);
            }
        tile->masked[i] = bits;
        tile->maxima[i] = 0;
    }
    if (!threadIdx.x) tile->found = 0;
    __syncthreads();
    spread<HALO>(tile->masked, tile->near);
    __syncthreads();
    for (int i = threadIdx.x; i < SIDE * SIDE / 4; i += THREADS) {
        int row = i / (SIDE / 4) - HALO, column = i % (SIDE / 4) * 4 - HALO, y = row0 + row, x = column0 + column;
        Four four = {0, 0, 0, 0};
        if (y >= 0 && y < height && x >= 0 && x < width) four = *(const Four *)(scores + y * width + x);
        for (int j = 0; j < 4; j++)
            if (is_set(tile->near, row, column + j) && four.at[j] > 0 &&
                (is_set(tile->masked, row, column + j) || !is_peak(scores, height, width, y, x + j)))
                four.at[j] = 0;
        *(Four *)&score_at(tile, row, column) = four;
    }
    __syncthreads();
}

// The maxima of RUN windows of 2 RADIUS + 1 values, each a value further: of what is left and what is right of one between.
__device__ void slide(const float (&values)[2 * RUN], float (&peaks)[RUN]) {
    peaks[RUN - 1] = values[RUN - 1];
    for (int i = RUN - 2; i >= 0; i--) peaks[i] = fmaxf(values[i], peaks[i + 1]);
    float right = values[RUN];
    for (int i = 0; i < RUN; i++) {
        right = fmaxf(right, values[RUN + i]);
        peaks[i] = fmaxf(peaks[i], right);
    }
}

// Add the local maxima of the scores, for the tile and AROUND pixels around it. A maximum of 0 would suppress nothing else than 0.
template <int AROUND>
__device__ void find_maxima(Tile *tile) {
    constexpr int COUNT = TILE + 2 * AROUND, LINES = COUNT + 2 * RADIUS;
    float values[2 * RUN], peaks[RUN];
    for (int i = threadIdx.x; i < LINES * (COUNT / RUN); i += THREADS) {
        int line = i % LINES, column = i / LINES * RUN;
        const Four *from = (const Four *)&score_at(tile, line - AROUND - RADIUS, column - AROUND - RADIUS);
        Four *to = (Four *)(tile->along + line * ALONG + column);
        for (int j = 0; j < 2 * RUN / 4; j++) {
            Four four = from[j];
            for (int k = 0; k < 4; k++) values[4 * j + k] = four.at[k];
        }
        slide(values, peaks);
        for (int j = 0; j < RUN; j += 4) to[j / 4] = {peaks[j], peaks[j + 1], peaks[j + 2], peaks[j + 3]};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < COUNT * (COUNT / RUN); i += THREADS) {
        int column = i % COUNT, line = i / COUNT * RUN;
        for (int j = 0; j < 2 * RUN; j++) values[j] = tile->along[(line + j) * ALONG + column];
        slide(values, peaks);
        for (int j = 0; j < RUN; j++) {
            int row = line + j - AROUND, bit = column - AROUND;
            float value = score_at(tile, row, bit);
            if (value > 0 && value == peaks[j]) set_bits(&tile->maxima[(row + RIM) * WORDS + (bit + 32) / 32], 1u << (bit & 31));
        }
    }
    __syncthreads();
}

// Zero the scores near maxima, for the tile and AROUND pixels around it.
template <int AROUND>
__device__ void suppress(Tile *tile) {
    constexpr int COUNT = TILE + 2 * AROUND;
    spread<AROUND>(tile->maxima, tile->near);
    __syncthreads();
    for (int i = threadIdx.x; i < COUNT * COUNT; i += THREADS) {
        int row = i / COUNT - AROUND, column = i % COUNT - AROUND;
        if (is_set(tile->near, row, column)) score_at(tile, row, column) = 0;
    }
    __syncthreads();
}

// `mask_scores`, `suppress_non_maxima` and the best of each BLOCK x BLOCK square -> keys of candidates, in any order. A pixel's place
// is its square's number, then its number in there. All maxima of a square are equal, so that the first is the best.
KERNEL __launch_bounds__(THREADS, 3) find_peaks(const float *scores, const uint32_t *mask, int height, int width,
                                                uint64_t *candidates, uint32_t *count) {
    SHARED Tile tile;
    int across = (width + TILE - 1) / TILE, down = (height + TILE - 1) / TILE;
    for (int number = blockIdx.x; number < across * down; number += gridDim.x) {
        int row0 = number / across * TILE, column0 = number % across * TILE;
        load(&tile, scores, mask, height, width, row0, column0);
        find_maxima<4 * RADIUS>(&tile);
        suppress<3 * RADIUS>(&tile);
        find_maxima<2 * RADIUS>(&tile);
        suppress<RADIUS>(&tile);
        find_maxima<0>(&tile);
        for (int i = threadIdx.x; i < TILE / BLOCK * (TILE / BLOCK); i += THREADS) {
            int row = i / (TILE / BLOCK) * BLOCK, column = i % (TILE / BLOCK) * BLOCK, y = row0 + row, x = column0 + column;
            if (y < BORDER || y >= height - BORDER || x < BORDER || x >= width - BORDER) continue;
            int square = (y - BORDER) / BLOCK * ((width - 2 * BORDER) / BLOCK) + (x - BORDER) / BLOCK, place = 0;
            while (place < PLACES && !is_set(tile.maxima, row + place / BLOCK, column + place % BLOCK)) place++;
            if (place == PLACES) continue;
            float score = scores[(y + place / BLOCK) * width + x + place % BLOCK];
            tile.keys[add_to(&tile.found, 1)] = (uint64_t)bits_of(score) << 32 | ~(uint32_t)(square * PLACES + place);
        }
        __syncthreads();
        if (!threadIdx.x) tile.first = add_to(count, tile.found);
        __syncthreads();
        for (int i = threadIdx.x; i < (int)tile.found; i += THREADS) candidates[tile.first + i] = tile.keys[i];
        __syncthreads();
    }
}

// The `wanted` greatest of the candidates, in any order, then 0 where there are fewer. One block of CHOOSERS threads: digit by digit
// from the left, which keys are greater than the last one that is taken. Scores are at most 1, so keys have 62 bits.
KERNEL __launch_bounds__(CHOOSERS) choose_keypoints(const uint64_t *candidates, const uint32_t *count, int wanted, uint64_t *winners) {
    SHARED uint32_t bins[BINS], groups[BINS / GROUP], digit, above_digit, taken;
    int total = (int)*count;
    uint32_t rest = wanted;  // to be taken of the keys that begin as `least`
    uint64_t least = 0;
    if (!threadIdx.x) taken = 0;
    for (int settled = 62, shift = 62 - DIGIT; total > wanted; settled = shift, shift = max(shift - DIGIT, 0)) {
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) bins[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < total; i += blockDim.x) {
            uint64_t key = candidates[i];
            if (!((key ^ least) >> settled)) add_to(&bins[key >> shift & (BINS - 1)], 1);
        }
        __syncthreads();
        for (int group = threadIdx.x; group < BINS / GROUP; group += blockDim.x) {
            groups[group] = 0;
            for (int i = 0; i < GROUP; i++) groups[group] += bins[group * GROUP + (i + group) % GROUP];  // no bank conflict
        }
        __syncthreads();
        for (int group = threadIdx.x; group < BINS / GROUP; group += blockDim.x) {
            uint32_t above = 0;
            for (int other = group + 1; other < BINS / GROUP; other++) above += groups[other];
            if (above >= rest || above + groups[group] < rest) continue;
            int bin = group * GROUP + GROUP - 1;
            while (above + bins[bin] < rest) above += bins[bin--];
            digit = bin, above_digit = above;
        }
        __syncthreads();
        least = (least >> settled << settled) | (uint64_t)digit << shift;
        rest -= above_digit;
        if (bins[digit] == rest) break;  // at the last digit, as keys differ
        __syncthreads();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < total; i += blockDim.x) {
        uint64_t key = candidates[i];
        if (key >= least) winners[add_to(&taken, 1)] = key;
    }
    for (int i = total + threadIdx.x; i < wanted; i += blockDim.x) winners[i] = 0;
}

// A warp for each keypoint: its row by its score, its mean position under the scores around it as `refine`, its descriptor as
// `describe`. A row without a keypoint has score 0 and is of the first pixel off the border.
template <class T>
__device__ void describe(const uint64_t *winners, int wanted, const float *scores, const uint8_t *mask, int height, int width,
                         const T *dense, int channels, int channel_step, int cell_step, float *keypoints, float *found, T *descriptors) {
    constexpr int SHARE = CHANNELS / LANES, AROUND = 2 * REFINE_RADIUS + 1;
    int lane = threadIdx.x % LANES, across = (width - 2 * BORDER) / BLOCK, rows = height / CELL, columns = width / CELL;
    for (int i = blockIdx.x * WARPS + threadIdx.x / LANES; i < wanted; i += gridDim.x * WARPS) {
        uint64_t key = winners[i];
        int greater = 0;
        for (int j = lane; j < wanted; j += LANES) greater += winners[j] > key;
        int row = key ? sum(greater) : i, place = key ? (int)~(uint32_t)key : 0, square = place / PLACES;
        int u = BORDER + square % across * BLOCK + place % BLOCK, v = BORDER + square / across * BLOCK + place % PLACES / BLOCK;

        float total = 0, right = 0, down = 0;
        for (int j = lane; j < AROUND * AROUND; j += LANES) {
            int du = j % AROUND - REFINE_RADIUS, dv = j / AROUND - REFINE_RADIUS, at = (v + dv) * width + u + du;
            float weight = mask[at] ? scores[at] : 0.f;
            total += weight, right += weight * du, down += weight * dv;
        }
        total = sum(total) + 1e-9f, right = sum(right), down = sum(down);
        if (!lane) keypoints[2 * row] = u + right / total, keypoints[2 * row + 1] = v + down / total;
        if (!lane) found[row] = of_bits((uint32_t)(key >> 32));

        // the released model's grid: the centre of the first cell is pixel 3.5, and W - 4.5 maps to the last one
        float x = (u - 3.5f) * (2 / (width - 4.5f)) - 1, y = (v - 3.5f) * (2 / (height - 4.5f)) - 1;
        x = (x + 1) / 2 * (columns - 1), y = (y + 1) / 2 * (rows - 1);
        float left = floorf(x), top = floorf(y), mixed[SHARE] = {}, length = 0;
        for (int corner = 0; corner < 4; corner++) {
            int column = (int)left + corner % 2, line = (int)top + corner / 2;
            if (column < 0 || column >= columns || line < 0 || line >= rows) continue;
            float weight = (corner % 2 ? x - left : 1 - (x - left)) * (corner / 2 ? y - top : 1 - (y - top));
            const T *from = dense + (size_t)(line * columns + column) * cell_step;
            float values[SHARE], squares = 0;
            for (int j = 0; j < SHARE; j++) {
                int channel = lane + j * LANES;
                values[j] = channel < channels ? widened(from[(size_t)channel * channel_step]) : 0.f;
                squares += values[j] * values[j];
            }
            weight /= fmaxf(sqrtf(sum(squares)), 1e-12f);
            for (int j = 0; j < SHARE; j++) mixed[j] += weight * values[j];
        }
        for (int j = 0; j < SHARE; j++) length += mixed[j] * mixed[j];
        length = fmaxf(sqrtf(sum(length)), 1e-12f);
        for (int j = 0; j < SHARE; j++)
            if (lane + j * LANES < channels) narrow(mixed[j] / length, descriptors + (size_t)row * channels + lane + j * LANES);
    }
}

KERNEL describe_keypoints_fp16(const uint64_t *winners, int wanted, const float *scores, const uint8_t *mask, int height, int width,
                               const half *dense, int channels, int channel_step, int cell_step, float *keypoints, float *found,
                               half *descriptors) {
    describe(winners, wanted, scores, mask, height, width, dense, channels, channel_step, cell_step, keypoints, found, descriptors);
}

KERNEL describe_keypoints_fp32(const uint64_t *winners, int wanted, const float *scores, const uint8_t *mask, int height, int width,
                               const float *dense, int channels, int channel_step, int cell_step, float *keypoints, float *found,
                               float *descriptors) {
    describe(winners, wanted, scores, mask, height, width, dense, channels, channel_step, cell_step, keypoints, found, descriptors);
}

// From matches and refined points to correspondences: the epipolar geometry of the matches, which unmatched points continue, and the
// rows of both. What core.refinement.variance_factor and core.correspondences do on the host; the fit in FP64, as there.

#include "lens.h"
#include "portable.h"

#ifdef __CUDACC__
constexpr int BLOCK = 512;  // threads that fit: more than samples
#else
constexpr int BLOCK = 1;
#endif
constexpr int SAMPLES = 300, PARTS = 11;  // variance_factor.SAMPLES; threads to one sum over them
constexpr int TERMS = 9, PAIRS = 45;  // of a fundamental matrix; different products of two of them
constexpr int SQUARINGS = 24;  // of an inverse, at most: its largest eigenvalue then outweighs all that are a millionth smaller

struct Settings {  // all that is set elsewhere; float, in the order of gpu_geometry.settings_of
    float enough, rounds, settled, exact, quantile, wrong_px, wrong_sigmas, doubt;
    float max_sigma_px, line_px, near_px;
    float unit, scale_u, scale_v;  // pixels of the frame to one of the engine's image, and what takes keypoints to the frame
    float width, height;
    float sharp;
};

struct Fit {  // of the matches, as gpu_geometry.FIT has it
    double fundamental[TERMS];  // maps points to their lines; of undistorted pixels
    double middle, quantile;  // of the squared residuals over their variances: the median, and settings' quantile of the inliers
    double second_quantile;  // the same of the geometry that fits second best
    uint32_t matched, irregular, inliers, propagated;  // numbers; irregular: matches with values that are not finite
    uint32_t fitted, unused;  // matches that the lens can undistort
};

struct Straight { const float *points0, *points1, *slopes; };  // (rows, 2), (rows, 2), (rows, 2, 2), as `straighten` leaves them

__device__ bool is_known(const Straight &straight, int row) {
    const float *one = straight.points0 + 2 * row, *other = straight.points1 + 2 * row, *slopes = straight.slopes + 4 * row;
    return isfinite(one[0] + one[1] + other[0] + other[1] + slopes[0] + slopes[1] + slopes[2] + slopes[3]);
}

// Length of a line's gradient by the pixels of the image: a distance over that is in these pixels.
__device__ double in_image(const float *slopes, double a, double b) {
    double u = slopes[0] * a + slopes[2] * b, v = slopes[1] * a + slopes[3] * b;
    return sqrt(u * u + v * v);
}

// Points of the reference (rows, 2), and where they were found (rows, 2), without distortion; of rows that are matched or searched.
KERNEL straighten(const Lens *lens, const float *points, const uint8_t *searched, const int *matches, const float *refined, int count,
                  int rows, float *points0, float *points1, float *slopes) {
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
        if (!searched[row] && !(row < count && matches[row] >= 0)) continue;
        undistort(*lens, points + 2 * row, points0 + 2 * row, slopes + 4 * row);
        undistort(*lens, refined + 2 * row, points1 + 2 * row, slopes + 4 * row);
    }
}

struct Rows {  // of `count` correspondences at most, matches first: pixels; of the reference and of the current frame
    int *rows0, *rows1;
    float *scores, *points0, *points1, *covariances;  // (count), (count, 2), (count, 2), (count, 2, 2)
};

__device__ Rows rows_behind(Fit *fit, int count) {
    int *rows = (int *)(fit + 1);
    float *scores = (float *)(rows + 2 * count);
    return {rows, rows + count, scores, scores + count, scores + 3 * count, scores + 5 * count};
}

struct Work {  // of the block that fits
    double products[TERMS][SAMPLES];  // times the matrix, row by row: x1' F x0; the last three are x0 itself
    double root[3][SAMPLES];  // of the covariances: a triangle
    double variances[SAMPLES], ratios[SAMPLES], weights[SAMPLES];
    double sums[PARTS][PAIRS], matrices[2][TERMS * TERMS], matrix[TERMS], before[TERMS];
    double mean[4], scale[2];
    float middle, quantiles[2];
    double sharpness;  // of the last matrix, as variance_factor._Judged has it
    alignas(16) uint32_t keys[SAMPLES];  // bits of the ratios as floats, which are in their order; NOT_CHOSEN is behind all of them
    uint32_t inliers;
    uint16_t rows[SAMPLES];  // of the reference
};

constexpr uint32_t NOT_CHOSEN = 0xffffffffu;
constexpr int KNOWN = 1 << 16;  // one match that is fitted, in sums that count matches below

__device__ float sigma_of(const float *covariance) {  // as types.largest_sigmas, of a, b and d
    float a = covariance[0], b = covariance[1], d = covariance[2];
    return sqrtf((a + d) / 2 + sqrtf((a - d) * (a - d) / 4 + b * b));
}

// the fit, all by one block

// The chosen ratio that `rank` chosen ones go before. Each thread asks whether it is its own.
__device__ void find_rank(const Work *work, int rank, float *found) {
    for (int i = threadIdx.x; i < SAMPLES; i += blockDim.x) {
        uint32_t own = work->keys[i];
        int before = 0, alike = 0;
        for (int j = 0; j < SAMPLES; j++) before += work->keys[j] < own, alike += work->keys[j] == own;
        if (own != NOT_CHOSEN && before <= rank && rank < before + alike) *found = of_bits(own);
    }
    __syncthreads();
}

// Samples about their mean, spread by one, and the terms that all rounds share. Pixels stand in rows 0 to 3 of the products.
__device__ void normalise(Work *work, int count) {
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    for (int axis = warp; axis < 4; axis += warps) {
        double total = 0;
        for (int i = lane; i < count; i += LANES) total += work->products[axis][i];
        work->mean[axis] = sum(total) / count;
    }
    __syncthreads();
    for (int side = warp; side < 2; side += warps) {
        double squares = 0;
        for (int i = lane; i < count; i += LANES)
            for (int axis = 2 * side; axis < 2 * side + 2; axis++) {
                double offset = work->products[axis][i] - work->mean[axis];
                squares += offset * offset;
            }
        double scale = sqrt(sum(squares) / (2 * count));
        work->scale[side] = scale > 0 ? 1 / scale : 1;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        double x[4], to = work->scale[1];
        for (int axis = 0; axis < 4; axis++) x[axis] = (work->products[axis][i] - work->mean[axis]) * work->scale[axis / 2];
        for (int row = 0; row < 3; row++)
            for (int column = 0; column < 3; column++)
                work->products[3 * row + column][i] = (row < 2 ? x[2 + row] : 1) * (column < 2 ? x[column] : 1);
        double a = work->root[0][i] * to * to, b = work->root[1][i] * to * to, d = work->root[2][i] * to * to;
        double along = sqrt(a + 1e-18), mixed = b / along;
        work->weights[i] = 1 / (work->root[0][i] + work->root[2][i] + 1e-18);
        work->root[0][i] = along, work->root[1][i] = mixed, work->root[2][i] = sqrt(max(d - mixed * mixed, 0.0));
    }
    __syncthreads();
}

// The normal matrix of the weighted samples (9, 9).
__device__ void gather(Work *work, int count, double *matrix) {
    for (int i = threadIdx.x; i < PARTS * PAIRS; i += blockDim.x) {
        int pair = i % PAIRS, row = 0;
        while (pair >= TERMS - row) pair -= TERMS - row++;  // the upper triangle, row by row
        const double *left = work->products[row], *right = work->products[row + pair];
        double sum = 0;
        for (int sample = i / PAIRS; sample < count; sample += PARTS) sum += work->weights[sample] * left[sample] * right[sample];
        work->sums[i / PAIRS][i % PAIRS] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TERMS * TERMS; i += blockDim.x) {
        int row = min(i / TERMS, i % TERMS), column = max(i / TERMS, i % TERMS);
        double sum = 0;
        for (int part = 0; part < PARTS; part++) sum += work->sums[part][row * TERMS - row * (row - 1) / 2 + column - row];
        matrix[i] = sum;
    }
    __syncthreads();
}

__device__ double trace_of(const double *matrix) {
    double sum = 0;
    for (int i = 0; i < TERMS; i++) sum += matrix[i * (TERMS + 1)];
    return sum;
}

// The eigenvector of the smallest eigenvalue of matrices[0]: its inverse, squared until the largest eigenvalue is all that is left.
__device__ void find_smallest(Work *work) {
    double *now = work->matrices[0], *next = work->matrices[1], least = 1e-16 * trace_of(now);
    for (int pivot = 0; pivot < TERMS; pivot++) {  // Gauss and Jordan, in place
        double by = 1 / max(now[pivot * (TERMS + 1)], least);
        for (int i = threadIdx.x; i < TERMS * TERMS; i += blockDim.x) {
            int row = i / TERMS, column = i % TERMS;
            double across = now[pivot * TERMS + column] * by;
            if (row == pivot) next[i] = column == pivot ? by : across;
            else if (column == pivot) next[i] = -now[i] * by;
            else next[i] = now[i] - now[row * TERMS + pivot] * across;
        }
        __syncthreads();
        double *done = next;
        next = now, now = done;
    }
    double trace = trace_of(now);
    for (int squaring = 0; squaring < SQUARINGS; squaring++) {
        double scale = 1 / (trace * trace);
        for (int i = threadIdx.x; i < TERMS * TERMS; i += blockDim.x) {
            double sum = 0;
            for (int k = 0; k < TERMS; k++) sum += now[i / TERMS * TERMS + k] * now[k * TERMS + i % TERMS];
            next[i] = sum * scale;
        }
        __syncthreads();
        double *done = next;
        next = now, now = done;
        trace = trace_of(now);
        if (!squaring && !threadIdx.x) work->sharpness = trace;
        if (trace > 1 - 1e-14) break;  // squares of shares of the trace that was: one is left
    }
    int best = 0;
    for (int i = 1; i < TERMS; i++) best = now[i * (TERMS + 1)] > now[best * (TERMS + 1)] ? i : best;
    double length = 0;
    for (int i = 0; i < TERMS; i++) length += now[i * TERMS + best] * now[i * TERMS + best];
    for (int i = threadIdx.x; i < TERMS; i += blockDim.x) work->matrix[i] = now[i * TERMS + best] / sqrt(length);
    __syncthreads();
}

struct Line { double u, v; };

__device__ Line line_of(const Work *work, int sample) {  // without its offset
    const double *m = work->matrix;
    double x = work->products[6][sample], y = work->products[7][sample];
    return {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
}

__device__ double residual_of(const Work *work, int sample) {  // x1' F x0
    double sum = 0;
    for (int i = 0; i < TERMS; i++) sum += work->matrix[i] * work->products[i][sample];
    return sum;
}

__device__ double variance_of(const Work *work, int sample) {  // of that
    Line line = line_of(work, sample);
    double first = line.u * work->root[0][sample] + line.v * work->root[1][sample], second = line.v * work->root[2][sample];
    return first * first + second * second + 1e-18;
}

// Squared residuals over their variances, and the median of these.
__device__ void judge(Work *work, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        double residual = residual_of(work, i);
        work->variances[i] = variance_of(work, i);
        work->ratios[i] = residual * residual / work->variances[i];
        work->keys[i] = bits_of((float)work->ratios[i]);
    }
    __syncthreads();
    find_rank(work, count / 2, &work->middle);
}

__device__ void weigh(Work *work, int count) {  // the samples, for the next round
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        double weight = 1 + work->ratios[i] / fmaxf(4.f, work->middle);
        work->weights[i] = 1 / (weight * weight * work->variances[i]);
    }
}

// The eight-point algorithm, weighted by the variances and by Geman and McClure's loss, until that settles.
__device__ void settle(const Settings *s, Work *work, int count) {
    for (int i = threadIdx.x; i < TERMS; i += blockDim.x) work->matrix[i] = 0;
    for (int i = count + threadIdx.x; i < SAMPLES; i += blockDim.x) work->keys[i] = NOT_CHOSEN;
    for (int round = 0; round < (int)s->rounds; round++) {
        __syncthreads();
        for (int i = threadIdx.x; i < TERMS; i += blockDim.x) work->before[i] = work->matrix[i];
        gather(work, count, work->matrices[0]);
        find_smallest(work);
        judge(work, count);
        double along = 0;
        for (int i = 0; i < TERMS; i++) along += work->before[i] * work->matrix[i];
        if (1 - fabs(along) < s->settled || work->middle < s->exact) break;
        weigh(work, count);
    }
}

// The quantile of the chosen ratios, of which there are so many.
__device__ double quantile_of(const Settings *s, Work *work, int chosen) {
    double place = s->quantile * (max(chosen, 1) - 1);
    int first = (int)place;
    find_rank(work, first, &work->quantiles[0]);
    find_rank(work, min(first + 1, chosen - 1), &work->quantiles[1]);
    return work->quantiles[0] + (place - first) * (work->quantiles[1] - work->quantiles[0]);
}

// The quantile of the same samples for the matrix that fits second best: the first one's eigenvalue becomes the largest.
__device__ double second_quantile(const Settings *s, Work *work, int count) {
    weigh(work, count);
    __syncthreads();
    double *matrix = work->matrices[0];
    gather(work, count, matrix);
    double trace = trace_of(matrix);
    __syncthreads();
    for (int i = threadIdx.x; i < TERMS * TERMS; i += blockDim.x) matrix[i] += trace * work->matrix[i / TERMS] * work->matrix[i % TERMS];
    __syncthreads();
    find_smallest(work);
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        double residual = residual_of(work, i);
        if (work->keys[i] != NOT_CHOSEN) work->keys[i] = bits_of((float)(residual * residual / variance_of(work, i)));
    }
    __syncthreads();
    return quantile_of(s, work, work->inliers);
}

// Inliers, their quantile, and the fundamental matrix of pixels.
__device__ void finish(const Settings *s, Work *work, int count, const float *slopes, Fit *fit) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        Line line = line_of(work, i);
        double along = in_image(slopes + 4 * work->rows[i], line.u, line.v) + 1e-15;
        double distance = fabs(residual_of(work, i)) / along / work->scale[1];
        if (distance < s->wrong_px * fmaxf(1.f, s->unit) || work->ratios[i] < s->wrong_sigmas * s->wrong_sigmas) add_to(&work->inliers, 1);
        else work->keys[i] = NOT_CHOSEN;
    }
    __syncthreads();
    double quantile = quantile_of(s, work, work->inliers);
    for (int i = threadIdx.x; i < TERMS; i += blockDim.x) {  // to1' M to0
        double sum = 0;
        for (int row = 0; row < 3; row++)
            for (int column = 0; column < 3; column++) {
                double left = row == i / 3 ? (row < 2 ? work->scale[1] : 1) : i / 3 == 2 ? -work->mean[2 + row] * work->scale[1] : 0;
                double right = column == i % 3 ? (column < 2 ? work->scale[0] : 1) : i % 3 == 2 ? -work->mean[column] * work->scale[0] : 0;
                sum += left * work->matrix[3 * row + column] * right;
            }
        fit->fundamental[i] = sum;
    }
    double second = work->sharpness < s->sharp ? second_quantile(s, work, count) : INFINITY;
    if (!threadIdx.x) fit->middle = work->middle, fit->inliers = work->inliers, fit->quantile = quantile, fit->second_quantile = second;
}

__device__ bool is_finite(const float *point, const float *keypoint, float score, const float *refined, const float *covariance) {
    return isfinite(point[0] + point[1] + keypoint[0] + keypoint[1] + score + refined[0] + refined[1] + covariance[0] + covariance[1] +
                    covariance[2]);
}

// The current frame's points (count, 2), refined where matched; keys (count) for `compete`; the rows of the matches, and what fits
// them. Points, refined and covariances are those of `refine`, a row for each of the reference's; points0, points1 and slopes are those
// of `straighten`. One block.
KERNEL fit_matches(const Settings *s, const float *points, const float *keypoints, const int *matches, const float *scores,
                   const float *refined, const float *covariances, int count, const float *points0, const float *points1,
                   const float *slopes, float *next_points, uint64_t *winners, Fit *fit) {
    SHARED Work work;
    Straight straight = {points0, points1, slopes};
    Rows found = rows_behind(fit, 2 * count);
    SHARED uint32_t ranks[BLOCK], totals[BLOCK / LANES], irregular;
    int thread = threadIdx.x, each = (count + blockDim.x - 1) / blockDim.x, from = thread * each, to = min(count, from + each), own = 0;
    if (!thread) irregular = 0, work.inliers = 0;
    for (int i = thread; i < count; i += blockDim.x) {
        winners[i] = 0;
        next_points[2 * i] = (keypoints[2 * i] + 0.5f) * s->scale_u - 0.5f;
        next_points[2 * i + 1] = (keypoints[2 * i + 1] + 0.5f) * s->scale_v - 0.5f;
    }
    for (int row = from; row < to; row++)
        if (matches[row] >= 0) own += is_known(straight, row) ? 1 + KNOWN : 1;
    ranks[thread] = own, totals[thread / LANES] = sum(own);
    __syncthreads();
    int rank = 0, matched = 0;
    for (int other = thread / LANES * LANES; other < thread; other++) rank += ranks[other];
    for (int warp = 0; warp < BLOCK / LANES; warp++) rank += warp < thread / LANES ? totals[warp] : 0, matched += totals[warp];
    int known_rank = rank / KNOWN, fitted = matched / KNOWN;
    rank %= KNOWN, matched %= KNOWN;
    int stride = max(1, (fitted + SAMPLES - 1) / SAMPLES);
    for (int row = from; row < to; row++) {
        int match = matches[row];
        if (match < 0) continue;
        const float *point = points + 2 * row, *there = refined + 2 * row, *covariance = covariances + 3 * row;
        if (!is_finite(point, keypoints + 2 * match, scores[row], there, covariance)) add_to(&irregular, 1);
        float doubt = 1 + s->doubt * (1 - scores[row]);  // as Refined.with_doubt
        found.rows0[rank] = row, found.rows1[rank] = match, found.scores[rank] = scores[row];
        winners[match] = ~(uint64_t)0;  // nobody wins what is matched
        for (int axis = 0; axis < 2; axis++) {
            found.points0[2 * rank + axis] = point[axis];
            found.points1[2 * rank + axis] = next_points[2 * match + axis] = there[axis];
        }
        for (int i = 0; i < 4; i++) found.covariances[4 * rank + i] = covariance[(i + 1) / 2] * doubt;
        rank++;
        if (!is_known(straight, row) || known_rank++ % stride) continue;
        int sample = (known_rank - 1) / stride;
        const float *j = slopes + 4 * row;
        double a = covariance[0] * doubt, b = covariance[1] * doubt, d = covariance[2] * doubt;
        double left[4] = {j[0] * a + j[1] * b, j[0] * b + j[1] * d, j[2] * a + j[3] * b, j[2] * b + j[3] * d};  // J cov
        work.rows[sample] = row;
        for (int axis = 0; axis < 2; axis++) {
            work.products[axis][sample] = points0[2 * row + axis];
            work.products[2 + axis][sample] = points1[2 * row + axis];
            work.root[axis][sample] = left[0] * j[2 * axis] + left[1] * j[2 * axis + 1];
        }
        work.root[2][sample] = left[2] * j[2] + left[3] * j[3];
    }
    __syncthreads();
    if (!thread) fit->matched = matched, fit->irregular = irregular, fit->inliers = fit->propagated = 0, fit->fitted = fitted;
    if (fitted < (int)s->enough || irregular) return;
    int samples = (fitted + stride - 1) / stride;
    normalise(&work, samples);
    settle(s, &work, samples);
    finish(s, &work, samples, slopes, fit);
}

// propagation, as correspondences.propagate. A key is larger where the covariance is smaller, and unique; 0: no candidate.

__device__ double distance_of(const double *f, const Straight &straight, int row) {  // to its epipolar line, pixels of the image
    const float *point = straight.points0 + 2 * row, *there = straight.points1 + 2 * row;
    double u = point[0], v = point[1], a = f[0] * u + f[1] * v + f[2], b = f[3] * u + f[4] * v + f[5], c = f[6] * u + f[7] * v + f[8];
    return fabs(a * there[0] + b * there[1] + c) / in_image(straight.slopes + 4 * row, a, b);
}

// keys (rows): of unmatched rows that are searched, were found, lie in the image where the mask allows it, and near their line.
KERNEL find_candidates(const Settings *s, const float *points, const uint8_t *searched, const int *matches, const float *refined,
                       const float *covariances, int count, int rows, const float *points0, const float *points1, const float *slopes,
                       const uint8_t *mask, const Fit *fit, uint64_t *keys) {
    Straight straight = {points0, points1, slopes};
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
        keys[row] = 0;
        const float *point = points + 2 * row, *there = refined + 2 * row;
        bool known = searched[row] && fit->matched && !(row < count && matches[row] >= 0) && isfinite(point[0] + point[1]);
        if (!known) continue;
        float sigma = sigma_of(covariances + 3 * row);
        bool good = sigma <= s->max_sigma_px * s->unit && there[0] >= 0 && there[1] >= 0 && there[0] <= s->width - 1 && there[1] <= s->height - 1;
        if (!good || !mask[(int)(there[1] + 0.5f) * (int)s->width + (int)(there[0] + 0.5f)]) continue;
        if (fit->fitted >= s->enough && !(distance_of(fit->fundamental, straight, row) < s->line_px * s->unit)) continue;
        keys[row] = ~((uint64_t)bits_of(sigma) << 32 | (uint32_t)row);
    }
}

__device__ bool is_near(const Settings *s, const float *one, const float *other) {
    float du = one[0] - other[0], dv = one[1] - other[1], near = s->near_px * s->unit;
    return du * du + dv * dv < near * near;
}

__device__ int least(int x) {  // over the lanes of a warp; each gets it
#ifdef __CUDACC__
    for (int other = LANES / 2; other; other /= 2) x = min(x, __shfl_xor_sync(0xffffffffu, x, other));
#endif
    return x;
}

// targets (rows): the first keypoint near a candidate, or `count`, or -1 where a better candidate is near. Of all candidates near a
// keypoint the best wins it. A warp a row, as below.
KERNEL compete(const Settings *s, const float *refined, const float *next_points, int count, int rows, const uint64_t *keys, int *targets,
               uint64_t *winners) {
    int lane = threadIdx.x % LANES;
    for (int row = blockIdx.x * WARPS + threadIdx.x / LANES; row < rows; row += gridDim.x * WARPS) {
        uint64_t key = keys[row];
        if (!key) continue;
        int target = count;
        for (int i = lane; i < count && target == count; i += LANES)
            if (is_near(s, refined + 2 * row, next_points + 2 * i)) target = i;
        for (int other = lane; other < rows; other += LANES)
            if (keys[other] > key && is_near(s, refined + 2 * row, refined + 2 * other)) target = -1;
        target = least(target);
        if (lane) continue;
        targets[row] = target;
        if (target >= 0 && target < count) raise_to(winners + target, key);
    }
}

struct Candidates { const uint64_t *keys, *winners; const int *targets; int count; };

__device__ bool continues(const Candidates &c, int row) {
    if (!c.keys[row] || c.targets[row] < 0) return false;
    return c.targets[row] == c.count || c.winners[c.targets[row]] == c.keys[row];
}

// The rows of points that continue, smallest covariance first, after those of the matches; `count` at most.
KERNEL propagate(const float *points, const float *refined, const float *covariances, int count, int rows, const uint64_t *keys,
                 const int *targets, const uint64_t *winners, Fit *fit) {
    Candidates candidates = {keys, winners, targets, count};
    Rows found = rows_behind(fit, 2 * count);
    int lane = threadIdx.x % LANES;
    for (int row = blockIdx.x * WARPS + threadIdx.x / LANES; row < rows; row += gridDim.x * WARPS) {
        if (!continues(candidates, row)) continue;
        int better = 0, better_new = 0;
        for (int other = lane; other < rows; other += LANES)
            if (keys[other] > keys[row] && continues(candidates, other)) better++, better_new += targets[other] == count;
        better = sum(better), better_new = sum(better_new);
        if (lane || better >= count) continue;
        int at = fit->matched + better;
        found.rows0[at] = row, found.rows1[at] = targets[row] == count ? count + better_new : targets[row], found.scores[at] = 0;
        for (int axis = 0; axis < 2; axis++)
            found.points0[2 * at + axis] = points[2 * row + axis], found.points1[2 * at + axis] = refined[2 * row + axis];
        for (int i = 0; i < 4; i++) found.covariances[4 * at + i] = covariances[3 * row + (i + 1) / 2];
        add_to(&fit->propagated, 1);
    }
}

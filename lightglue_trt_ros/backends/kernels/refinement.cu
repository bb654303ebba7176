// A camera's frame on the GPU, and points refined in it: what OpenCV and lightglue_trt_ros.core.refinement do on the host, in FP32.

#include "portable.h"

constexpr int COARSE = 7, FINE = 4;  // radii of patches, as refinement has them
constexpr int SIDE = 2 * COARSE + 1, RIM = SIDE + 2;
constexpr int SOURCES = 128;  // matches that the view's change is taken from, as in patches.py

struct Level { float radius, steps, noise, backward; };  // as refinement.Level

struct Settings {  // all that is set elsewhere; float, in the order of gpu_refinement.settings_of
    Level coarse, fine;
    float floor_px, disagreement, ghost, bend, limit_px, unrefined_px, predicted_px, predicted_limit_px;
    float faint, alike, quantisation, reach_px, ridge_px;
    float unit, scale_u, scale_v;  // pixels of the frame to one of the engine's image: at least 1, and what takes matches to the frame
};

struct Sources { float count, middle_u, middle_v, shift_u, shift_v, at[SOURCES][4]; };  // at: where they were, and went beside the shift

struct Image { const float *pixels; int height, width; };
struct Pair { float u, v; };
struct Full { float a, b, c, d; };
struct Symmetric { float a, b, d; };

__device__ Pair times(Full m, Pair x) { return {m.a * x.u + m.b * x.v, m.c * x.u + m.d * x.v}; }
__device__ Pair times(Symmetric m, Pair x) { return {m.a * x.u + m.b * x.v, m.b * x.u + m.d * x.v}; }
__device__ Full times(Full l, Symmetric r) { return {l.a * r.a + l.b * r.b, l.a * r.b + l.b * r.d, l.c * r.a + l.d * r.b, l.c * r.b + l.d * r.d}; }
__device__ Symmetric squared(Pair x) { return {x.u * x.u, x.u * x.v, x.v * x.v}; }
__device__ Symmetric scaled(Symmetric m, float by) { return {m.a * by, m.b * by, m.d * by}; }
__device__ Symmetric added(Symmetric l, Symmetric r) { return {l.a + r.a, l.b + r.b, l.d + r.d}; }

__device__ Symmetric inverse(Symmetric m) {  // as matrices.inverse_2x2
    float a = m.a + 1e-6f, d = m.d + 1e-6f, determinant = fmaxf(a * d - m.b * m.b, 1e-6f * (a + d) * (a + d));
    return {d / determinant, -m.b / determinant, a / determinant};
}

__device__ float mean(Symmetric m) { return (m.a + m.d) / 2; }  // of the eigenvalues
__device__ float half_gap(Symmetric m) { return sqrtf((m.a - m.d) / 2 * ((m.a - m.d) / 2) + m.b * m.b); }

__device__ Symmetric lessened(Symmetric m, float by) {  // as matrices.lessened
    float middle = mean(m), gap = half_gap(m), more = fmaxf(middle + gap - by, 0.f), less = fmaxf(middle - gap - by, 0.f);
    float kept = (more - less) / (2 * gap + 1e-6f), left = (more + less) / 2;
    return {(m.a - middle) * kept + left, m.b * kept, (m.d - middle) * kept + left};
}

__device__ float sample(Image image, float u, float v, bool inside) {  // bilinear; the edge goes on for ever
    if (!inside) {
        u = fminf(fmaxf(u, 0.f), image.width - 1.f);
        v = fminf(fmaxf(v, 0.f), image.height - 1.f);
    }
    int column = (int)u, row = (int)v, next = inside || column + 1 < image.width, line = inside || row + 1 < image.height ? image.width : 0;
    float right = u - column, down = v - row;
    const float *here = image.pixels + (size_t)row * image.width + column, *below = here + line;
    float above = here[0] + right * (here[next] - here[0]);
    return above + down * (below[0] + right * (below[next] - below[0]) - above);
}

// frames

KERNEL resize(const uint8_t *image, int width, const int *first_rows, const float *row_weights, int row_taps,
              const int *first_columns, const float *column_weights, int column_taps, uint8_t *resized, int new_height, int new_width) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < new_height * new_width; i += gridDim.x * blockDim.x) {
        int row = i / new_width, column = i % new_width;
        const float *down = row_weights + row * row_taps, *right = column_weights + column * column_taps;
        float gray = 0;
        for (int r = 0; r < row_taps; r++) {
            const uint8_t *line = image + (size_t)(first_rows[row] + r) * width + first_columns[column];
            float along = 0;
            for (int c = 0; c < column_taps; c++) along += right[c] * line[c];
            gray += down[r] * along;
        }
        resized[i] = (uint8_t)fminf(fmaxf(floorf(gray + 0.5f), 0.f), 255.f);
    }
}

KERNEL widen(const uint8_t *image, float *level, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) level[i] = image[i];
}

__device__ int mirrored(int place, int count) {
    place = place < 0 ? -place : place;
    place = place >= count ? 2 * count - 2 - place : place;
    return place < 0 ? 0 : place;
}

KERNEL halve(const float *level, int height, int width, float *half) {  // as cv2.pyrDown: Burt and Adelson, 1983
    const float weights[5] = {1 / 16.f, 4 / 16.f, 6 / 16.f, 4 / 16.f, 1 / 16.f};
    int new_height = (height + 1) / 2, new_width = (width + 1) / 2;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < new_height * new_width; i += gridDim.x * blockDim.x) {
        int row = 2 * (i / new_width), column = 2 * (i % new_width);
        float gray = 0;
        for (int r = -2; r <= 2; r++) {
            const float *line = level + (size_t)mirrored(row + r, height) * width;
            float along = 0;
            for (int c = -2; c <= 2; c++) along += weights[c + 2] * line[mirrored(column + c, width)];
            gray += weights[r + 2] * along;
        }
        half[i] = gray;
    }
}

// points

__device__ Pair match_of(const Settings *s, const float *keypoints, int match) {  // as geometry.to_original
    return {(keypoints[2 * match] + 0.5f) * s->scale_u - 0.5f, (keypoints[2 * match + 1] + 0.5f) * s->scale_v - 0.5f};
}

// Whether a row has a match, and both its points are finite.
__device__ bool has_match(const Settings *s, const float *points, const float *keypoints, const int *matches, int row) {
    if (matches[row] < 0) return false;
    Pair there = match_of(s, keypoints, matches[row]);
    return isfinite(points[2 * row] + points[2 * row + 1] + there.u + there.v);
}

// Of the matches of `count` rows every so many, SOURCES at most, about their mean: what patches.local_affine takes. One block.
KERNEL choose_sources(const Settings *s, const float *points, const float *keypoints, const int *matches, int count, Sources *sources) {
    SHARED int ranks[THREADS];
    SHARED float sums[4][THREADS];
    int thread = threadIdx.x, each = (count + THREADS - 1) / THREADS, from = thread * each, to = min(count, from + each), found = 0;
    float u = 0, v = 0, du = 0, dv = 0;
    for (int row = from; row < to; row++)
        if (has_match(s, points, keypoints, matches, row)) {
            Pair there = match_of(s, keypoints, matches[row]);
            found++;
            u += points[2 * row], v += points[2 * row + 1];
            du += there.u - points[2 * row], dv += there.v - points[2 * row + 1];
        }
    ranks[thread] = found;
    sums[0][thread] = u, sums[1][thread] = v, sums[2][thread] = du, sums[3][thread] = dv;
    __syncthreads();
    int before = 0, total = 0;
    u = v = du = dv = 0;
    for (int other = 0; other < THREADS; other++) {
        before += other < thread ? ranks[other] : 0;
        total += ranks[other];
        u += sums[0][other], v += sums[1][other], du += sums[2][other], dv += sums[3][other];
    }
    float known = max(total, 1), stride = (total + SOURCES - 1) / SOURCES;
    u /= known, v /= known, du /= known, dv /= known;
    for (int row = from; row < to; row++)
        if (has_match(s, points, keypoints, matches, row)) {
            int rank = before++;
            if (rank % (int)stride) continue;
            Pair there = match_of(s, keypoints, matches[row]);
            float *at = sources->at[rank / (int)stride];
            at[0] = (points[2 * row] - u) / s->reach_px, at[1] = (points[2 * row + 1] - v) / s->reach_px;
            at[2] = (there.u - points[2 * row] - du) / s->reach_px, at[3] = (there.v - points[2 * row + 1] - dv) / s->reach_px;
        }
    if (!thread) {
        sources->count = total ? ceilf(total / stride) : 0;
        sources->middle_u = u, sources->middle_v = v, sources->shift_u = du, sources->shift_v = dv;
    }
}

// As patches.local_affine: how offsets around a point become offsets around its match, and where it goes itself.
__device__ Full view_of(const Settings *s, const Sources *sources, Pair point, int lane, Pair *there) {
    float x = (point.u - sources->middle_u) / s->reach_px, y = (point.v - sources->middle_v) / s->reach_px;
    float total = 0, a0 = 0, a1 = 0, b0 = 0, b1 = 0, a00 = 0, a01 = 0, a11 = 0, b0a0 = 0, b0a1 = 0, b1a0 = 0, b1a1 = 0;
    for (int i = lane; i < (int)sources->count; i += LANES) {
        const float *at = sources->at[i];
        float du = x - at[0], dv = y - at[1], weight = expf(-0.5f * (du * du + dv * dv));
        total += weight;
        a0 += weight * at[0], a1 += weight * at[1], b0 += weight * at[2], b1 += weight * at[3];
        a00 += weight * at[0] * at[0], a01 += weight * at[0] * at[1], a11 += weight * at[1] * at[1];
        b0a0 += weight * at[2] * at[0], b0a1 += weight * at[2] * at[1], b1a0 += weight * at[3] * at[0], b1a1 += weight * at[3] * at[1];
    }
    total = sum(total) + 1e-6f;
    a0 = sum(a0) / total, a1 = sum(a1) / total, b0 = sum(b0) / total, b1 = sum(b1) / total;
    float ridge = s->ridge_px / s->reach_px;
    ridge *= ridge / total;
    float a = sum(a00) / total - a0 * a0 + ridge, b = sum(a01) / total - a0 * a1, d = sum(a11) / total - a1 * a1 + ridge;
    Full cross = {sum(b0a0) / total - b0 * a0, sum(b0a1) / total - b0 * a1, sum(b1a0) / total - b1 * a0, sum(b1a1) / total - b1 * a1};
    float determinant = a * d - b * b;
    Full change = times(cross, Symmetric{d / determinant, -b / determinant, a / determinant});
    Pair further = times(change, Pair{x - a0, y - a1});
    there->u = point.u + sources->shift_u + s->reach_px * (b0 + further.u);
    there->v = point.v + sources->shift_v + s->reach_px * (b1 + further.v);
    return {1 + change.a, change.b, change.c, 1 + change.d};
}

// Whether samples within `reach` of a point, as the view has it, need no edge.
__device__ bool is_inside(Image image, Pair at, Full view, float reach) {
    float u = reach * (fabsf(view.a) + fabsf(view.b)), v = reach * (fabsf(view.c) + fabsf(view.d));
    return at.u - u >= 0 && at.v - v >= 0 && at.u + u < image.width - 2 && at.v + v < image.height - 2;
}

struct Template {  // as patches._Template: gradients without gain and offset, and the patch over its contrast
    float along_u[SIDE * SIDE], along_v[SIDE * SIDE], pattern[SIDE * SIDE];
};

struct Work { float reference[RIM * RIM], current[RIM * RIM]; Template rows; };  // of a warp

// Make the template of a patch with its rim; the mean of its structure tensor, and its contrast.
template <int RADIUS>
__device__ Symmetric make_template(const float *patch, float faint, int lane, Template *rows, float *contrast) {
    constexpr int side = 2 * RADIUS + 1, wide = side + 2, count = side * side;
    float u = 0, v = 0, p = 0;
    __syncwarp();
    for (int i = lane; i < count; i += LANES) {
        const float *at = patch + (i / side + 1) * wide + i % side + 1;
        rows->along_u[i] = (at[1] - at[-1]) / 2, rows->along_v[i] = (at[wide] - at[-wide]) / 2, rows->pattern[i] = at[0];
        u += rows->along_u[i], v += rows->along_v[i], p += at[0];
    }
    u = sum(u) / count, v = sum(v) / count, p = sum(p) / count;
    float square = 0;
    for (int i = lane; i < count; i += LANES) {
        float gray = rows->pattern[i] - p;
        rows->along_u[i] -= u, rows->along_v[i] -= v, rows->pattern[i] = gray;
        square += gray * gray;
    }
    *contrast = fmaxf(sqrtf(sum(square) / count), faint);
    u = v = 0;
    for (int i = lane; i < count; i += LANES) {
        rows->pattern[i] /= *contrast;
        u += rows->along_u[i] * rows->pattern[i], v += rows->along_v[i] * rows->pattern[i];
    }
    u = sum(u) / count, v = sum(v) / count;
    Symmetric tensor = {0, 0, 0};
    for (int i = lane; i < count; i += LANES) {
        float along_u = rows->along_u[i] -= u * rows->pattern[i], along_v = rows->along_v[i] -= v * rows->pattern[i];
        tensor = added(tensor, squared({along_u, along_v}));
    }
    __syncwarp();
    return {sum(tensor.a) / count, sum(tensor.b) / count, sum(tensor.d) / count};
}

struct Fit { Pair here; Symmetric covariance; bool alike; };

// As patches.find_patches and refinement._covariances, for one patch.
template <int RADIUS>
__device__ Fit find_patch(const Settings *s, Level level, Image reference, Image current, Pair point, Pair here, Full view, int lane, Work *work) {
    constexpr int radius = RADIUS, side = 2 * radius + 1, wide = side + 2, count = side * side;
    bool inside = is_inside(reference, point, {1, 0, 0, 1}, radius + 1);
    Template *rows = &work->rows;
    __syncwarp();
    for (int i = lane; i < wide * wide; i += LANES)
        work->reference[i] = sample(reference, point.u + (i % wide - radius - 1), point.v + (i / wide - radius - 1), inside);
    float contrast;
    Symmetric inverted = inverse(make_template<RADIUS>(work->reference, s->faint, lane, rows, &contrast));
    Full step_of = times(view, inverted);
    for (int step = 0; step < (int)level.steps; step++) {
        float u = 0, v = 0, p = 0;
        inside = is_inside(current, here, view, radius);
        for (int i = lane; i < count; i += LANES) {
            Pair offset = times(view, Pair{(float)(i % side - radius), (float)(i / side - radius)});
            float seen = sample(current, here.u + offset.u, here.v + offset.v, inside);
            u += rows->along_u[i] * seen, v += rows->along_v[i] * seen, p += rows->pattern[i] * seen;
        }
        float gain = fmaxf(sum(p) / count / contrast, s->faint);
        Pair moved = times(step_of, Pair{sum(u) / count / gain, sum(v) / count / gain});
        here = {here.u - moved.u, here.v - moved.v};
    }
    inside = is_inside(current, here, view, radius + 1);
    for (int i = lane; i < wide * wide; i += LANES) {
        Pair offset = times(view, Pair{(float)(i % wide - radius - 1), (float)(i / wide - radius - 1)});
        work->current[i] = sample(current, here.u + offset.u, here.v + offset.v, inside);
    }
    __syncwarp();
    float mean = 0, square = 0, gain = 0;
    for (int i = lane; i < count; i += LANES) mean += work->current[(i / side + 1) * wide + i % side + 1];
    mean = sum(mean) / count;
    for (int i = lane; i < count; i += LANES) {
        float seen = work->current[(i / side + 1) * wide + i % side + 1] - mean;
        gain += rows->pattern[i] * seen, square += seen * seen;
    }
    gain = sum(gain) / count / contrast;
    float variance = sum(square) / count;
    bool alike = gain > s->faint && gain * contrast > s->alike * fmaxf(sqrtf(variance), s->faint);
    gain = fmaxf(gain, s->faint);
    float residual = fmaxf(variance / (gain * gain) - contrast * contrast, 0.f) + s->quantisation;
    // the way back, as the reference sees it: its first step says what more would
    Symmetric inverted_back = inverse(make_template<RADIUS>(work->current, s->faint, lane, rows, &contrast));
    float u = 0, v = 0, p = 0;
    for (int i = lane; i < count; i += LANES) {
        float seen = work->reference[(i / side + 1) * wide + i % side + 1];
        u += rows->along_u[i] * seen, v += rows->along_v[i] * seen, p += rows->pattern[i] * seen;
    }
    gain = fmaxf(sum(p) / count / contrast, s->faint);
    Pair back = times(view, times(inverted_back, Pair{sum(u) / count / gain, sum(v) / count / gain}));
    Full half = times(view, inverted);  // view inverse view^T
    Symmetric spread = {half.a * view.a + half.b * view.b, half.a * view.c + half.b * view.d, half.c * view.c + half.d * view.d};
    Symmetric covariance = added(scaled(spread, level.noise / count * residual), scaled(squared(back), level.backward));
    float floor = s->floor_px * s->floor_px;
    return {here, {covariance.a + floor, covariance.b, covariance.d + floor}, alike};
}

// As refinement.refine_points: `rows` points of the reference, of which the first `count` may have a match. Others are refined where
// they are `searched`. A warp a point.
KERNEL refine(const Settings *s, const Sources *sources, const float *reference, const float *current, int height, int width, int levels,
              const float *points, const uint8_t *searched, int rows, const float *keypoints, const int *matches, int count, float *refined,
              float *covariances) {
    SHARED Work works[WARPS];
    Work *work = &works[threadIdx.y];
    int lane = threadIdx.x;
    for (int row = blockIdx.x * WARPS + threadIdx.y; row < rows; row += gridDim.x * WARPS) {
        Pair point = {points[2 * row], points[2 * row + 1]}, start;
        bool matched = row < count && has_match(s, points, keypoints, matches, row);
        if (!isfinite(point.u + point.v) || !(matched || searched[row])) continue;  // nothing is asked for here
        Full view = view_of(s, sources, point, lane, &start);
        if (matched) start = match_of(s, keypoints, matches[row]);
        float limit = (matched ? s->limit_px : s->predicted_limit_px) * s->unit;
        float before_px = (matched ? s->unrefined_px : s->predicted_px) * s->unit;
        Symmetric information = {1 / (before_px * before_px), 0, 1 / (before_px * before_px)}, claimed = {0, 0, 0}, spread = {0, 0, 0};
        Pair moved = {0, 0}, shift = {0, 0};
        bool found = false, found_once = false;
        for (int depth = levels - 1; depth >= 0; depth--) {
            size_t skipped = 0;
            int high = height, long_ = width;
            for (int above = 0; above < depth; above++) skipped += (size_t)high * long_, high = (high + 1) / 2, long_ = (long_ + 1) / 2;
            float scale = (float)(1 << depth);
            Image before = {reference + skipped, high, long_}, now = {current + skipped, high, long_};
            Pair at = {point.u / scale, point.v / scale}, guess = {(start.u + shift.u) / scale, (start.v + shift.v) / scale};
            bool coarse = depth > 0 && depth == levels - 1;
            Level level = coarse ? s->coarse : s->fine;
            Fit fit = coarse ? find_patch<COARSE>(s, level, before, now, at, guess, view, lane, work)
                             : find_patch<FINE>(s, level, before, now, at, guess, view, lane, work);
            Pair here = {fit.here.u * scale, fit.here.v * scale}, to = {here.u - start.u, here.v - start.v};
            bool good = fit.alike && to.u * to.u + to.v * to.v < limit * limit;
            good = good && here.u >= 0 && here.v >= 0 && here.u <= width - 1 && here.v <= height - 1;
            Symmetric more = inverse(scaled(fit.covariance, scale * scale));
            good = good && isfinite(more.a + more.b + more.d);
            if (good && found) spread = added(spread, scaled(squared({to.u - shift.u, to.v - shift.v}), s->disagreement));
            if (good) {
                float side = 2 * level.radius + 1, of_noise = s->ghost * side * side / level.noise;
                Pair towards = times(more, to);
                information = added(information, more);
                claimed = added(claimed, lessened(more, of_noise / (scale * scale)));
                moved = {moved.u + towards.u, moved.v + towards.v};
            }
            found = good, found_once = found_once || good;
            shift = good ? to : Pair{0, 0};
        }
        float at_worst = found_once ? s->unrefined_px * s->unit : before_px, least = 1 / (at_worst * at_worst);
        Symmetric covariance = inverse(added(claimed, {least, 0, least}));
        Pair by = times(inverse(information), moved);
        float off = 2 * half_gap(covariance) * s->bend * s->bend;
        covariance = added(covariance, added(spread, {off, 0, off}));
        if (!lane) {
            refined[2 * row] = start.u + by.u, refined[2 * row + 1] = start.v + by.v;
            covariances[3 * row] = covariance.a, covariances[3 * row + 1] = covariance.b, covariances[3 * row + 2] = covariance.d;
        }
    }
}

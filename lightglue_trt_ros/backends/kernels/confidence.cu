// Whether LightGlue may stop, as `confident` of networks/lightglue.py: from the confidence tokens of both images the share of valid
// rows whose final match is known already, and their mean -log of the confidence. One block.

#include "portable.h"

__device__ float widened(float x) { return x; }
__device__ float widened(half x) { return float_of(x); }

// tokens (2, count), logits; result (2,). A row is confident where its -log of the confidence is at most the float in `limit_bits`.
template <class T>
__device__ void judge(const T *tokens, int count, const float *scores0, const float *scores1, const float *detection_threshold,
                      int limit_bits, float *result) {
    SHARED float sums[3][WARPS];
    float valid = 0, wavering = 0, doubts = 0, limit = of_bits((uint32_t)limit_bits);
    for (int row = threadIdx.x; row < 2 * count; row += THREADS) {
        if (!((row < count ? scores0[row] : scores1[row - count]) > *detection_threshold)) continue;
        float token = widened(tokens[row]), doubt = fmaxf(-token, 0.f) + log1pf(expf(-fabsf(token)));
        if (token != token) doubt = token;  // fmaxf would drop a NaN
        valid += 1, wavering += !(doubt <= limit), doubts += doubt;
    }
    valid = sum(valid), wavering = sum(wavering), doubts = sum(doubts);
    int warp = threadIdx.x / LANES;
    if (threadIdx.x % LANES == 0) sums[0][warp] = valid, sums[1][warp] = wavering, sums[2][warp] = doubts;
    __syncthreads();
    if (threadIdx.x) return;
    for (warp = 1; warp < WARPS; warp++) valid += sums[0][warp], wavering += sums[1][warp], doubts += sums[2][warp];
    valid = fmaxf(valid, 1.f);
    result[0] = 1 - wavering / valid, result[1] = doubts / valid;
}

KERNEL judge_fp16(const half *tokens, int count, const float *scores0, const float *scores1, const float *detection_threshold,
                  int limit_bits, float *result) {
    judge(tokens, count, scores0, scores1, detection_threshold, limit_bits, result);
}

KERNEL judge_fp32(const float *tokens, int count, const float *scores0, const float *scores1, const float *detection_threshold,
                  int limit_bits, float *result) {
    judge(tokens, count, scores0, scores1, detection_threshold, limit_bits, result);
}

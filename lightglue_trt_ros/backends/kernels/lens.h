// A camera's lens: which pixel of an ideal pinhole camera a pixel would be, and the derivative of that. As core/lens.py.

#pragma once

#include "portable.h"

struct Lens {  // as core.lens.Lens.constants
    double k[4], inverse[4], centre[2];
    double d[12];  // k1, k2, p1, p2, k3 ... k6, s1 ... s4; k1 ... k4 of an equidistant lens
    double tilt[9];  // the inverse of a tilted sensor's homography
    double kind, limit;
};

constexpr int IDEAL = 0, EQUIDISTANT = 2;
constexpr int LENS_ROUNDS = 30;
constexpr float LENS_SETTLED = 1e-5f, LENS_OFF_PX = 10, LARGEST_RAY = 1e3f;  // FP32 stops earlier than the host, one more step follows

template <typename T> struct Distorted { T u, v, uu, uv, vu, vv; };  // a point, and its derivative

template <typename T> __device__ Distorted<T> distort(const Lens &lens, T x, T y) {
    const double *d = lens.d;
    T k1 = d[0], k2 = d[1], p1 = d[2], p2 = d[3], k3 = d[4], k4 = d[5], k5 = d[6], k6 = d[7], s1 = d[8], s2 = d[9], s3 = d[10], s4 = d[11];
    T s = x * x + y * y, above = 1 + s * (k1 + s * (k2 + s * k3)), below = 1 + s * (k4 + s * (k5 + s * k6)), g = above / below;
    T slope = 2 * (k1 + s * (2 * k2 + s * 3 * k3) - g * (k4 + s * (2 * k5 + s * 3 * k6))) / below;
    T prism_x = 2 * (s1 + 2 * s2 * s), prism_y = 2 * (s3 + 2 * s4 * s), mixed = x * y * slope + 2 * p1 * x + 2 * p2 * y;
    return {x * g + 2 * p1 * x * y + p2 * (s + 2 * x * x) + s * (s1 + s2 * s), y * g + p1 * (s + 2 * y * y) + 2 * p2 * x * y + s * (s3 + s4 * s),
            g + x * x * slope + 2 * p1 * y + 6 * p2 * x + prism_x * x, mixed + prism_x * y,
            mixed + prism_y * x, g + y * y * slope + 6 * p1 * y + 2 * p2 * x + prism_y * y};
}

struct Ray { double x, y; float slopes[4]; bool known; };  // on the plane z = 1; derivative by the distorted point

// By Newton's method in FP32, and one more step in FP64: FP64 is slow on small GPUs. The radius never exceeds the limit.
__device__ Ray ray_of_polynomial(const Lens &lens, double u, double v) {
    float x = (float)u, y = (float)v, limit = (float)lens.limit;
    Ray ray = {0, 0, {}, false};
    for (int round = 0; round < LENS_ROUNDS; round++) {
        float radius = sqrtf(x * x + y * y), within = radius > limit ? limit / radius : 1;
        x *= within, y *= within;
        Distorted<float> there = distort<float>(lens, x, y);
        float by = 1 / (there.uu * there.vv - there.uv * there.vu), du = there.u - (float)u, dv = there.v - (float)v;
        float step_x = (there.vv * du - there.uv * dv) * by, step_y = (there.uu * dv - there.vu * du) * by;
        bool settled = max(fabsf(step_x), fabsf(step_y)) < LENS_SETTLED * max(1.f, radius);
        if (settled || round == LENS_ROUNDS - 1) {
            Distorted<double> exact = distort<double>(lens, x, y);
            double off_u = exact.u - u, off_v = exact.v - v;
            ray.x = x - (there.vv * off_u - there.uv * off_v) * by, ray.y = y - (there.uu * off_v - there.vu * off_u) * by;
            ray.slopes[0] = there.vv * by, ray.slopes[1] = -there.uv * by, ray.slopes[2] = -there.vu * by, ray.slopes[3] = there.uu * by;
            ray.known = settled && by > 0 && max(fabsf(du), fabsf(dv)) * (float)lens.k[0] < LENS_OFF_PX;  // before the fold, and no pole
            return ray;
        }
        x -= step_x, y -= step_y;
    }
    return ray;
}

template <typename T> __device__ T distorted_angle(const Lens &lens, T angle) {
    T s = angle * angle, k1 = lens.d[0], k2 = lens.d[1], k3 = lens.d[2], k4 = lens.d[3];
    return angle * (1 + s * (k1 + s * (k2 + s * (k3 + s * k4))));
}

__device__ Ray ray_of_angle(const Lens &lens, double u, double v) {
    double radius = sqrt(u * u + v * v);
    float limit = (float)lens.limit, angle = min((float)radius, limit), slope = 1, off = 0, step = 1;
    float k1 = lens.d[0], k2 = lens.d[1], k3 = lens.d[2], k4 = lens.d[3];
    for (int round = 0; round < LENS_ROUNDS && !(fabsf(step) < LENS_SETTLED); round++) {
        float s = angle * angle;
        slope = 1 + s * (3 * k1 + s * (5 * k2 + s * (7 * k3 + s * 9 * k4)));
        off = distorted_angle<float>(lens, angle) - (float)radius;
        step = off / slope;
        angle = max(0.f, min(angle - step, limit));
    }
    if (!(fabsf(step) < LENS_SETTLED && fabsf(off) * (float)lens.k[0] < LENS_OFF_PX && angle < limit && slope > 0)) return {0, 0, {}, false};
    double exact = angle - (distorted_angle<double>(lens, angle) - radius) / slope, across = radius > 1e-9 ? tan(exact) / radius : 1;
    float cosine = cosf((float)exact), along = 1 / (cosine * cosine * slope), more = radius > 1e-9 ? along - (float)across : 0;
    float unit_u = (float)(u / max(radius, 1e-9)), unit_v = (float)(v / max(radius, 1e-9));
    return {u * across, v * across,
            {(float)across + unit_u * unit_u * more, unit_u * unit_v * more, unit_u * unit_v * more, (float)across + unit_v * unit_v * more}, true};
}

// Where a pixel would be without the lens (2), and the derivative (2, 2); NaN where the lens has no inverse.
__device__ void undistort(const Lens &lens, const float *pixel, float *point, float *slopes) {
    if (lens.kind == IDEAL) {
        for (int i = 0; i < 2; i++) point[i] = pixel[i];
        for (int i = 0; i < 4; i++) slopes[i] = i % 3 == 0;
        return;
    }
    const double *k = lens.k, *inverse = lens.inverse, *h = lens.tilt;
    double du = pixel[0] - lens.centre[0], dv = pixel[1] - lens.centre[1];
    double u = inverse[0] * du + inverse[1] * dv, v = inverse[2] * du + inverse[3] * dv, w = h[6] * u + h[7] * v + h[8];
    double seen_u = (h[0] * u + h[1] * v + h[2]) / w, seen_v = (h[3] * u + h[4] * v + h[5]) / w;
    Ray ray = lens.kind == EQUIDISTANT ? ray_of_angle(lens, seen_u, seen_v) : ray_of_polynomial(lens, seen_u, seen_v);
    bool known = w > 0 && ray.known && fabs(ray.x) < LARGEST_RAY && fabs(ray.y) < LARGEST_RAY;
    float through_tilt[4] = {(float)((h[0] - seen_u * h[6]) / w), (float)((h[1] - seen_u * h[7]) / w),
                             (float)((h[3] - seen_v * h[6]) / w), (float)((h[4] - seen_v * h[7]) / w)};
    float right[4], left[4];
    for (int i = 0; i < 4; i++) right[i] = through_tilt[i / 2 * 2] * (float)inverse[i % 2] + through_tilt[i / 2 * 2 + 1] * (float)inverse[2 + i % 2];
    for (int i = 0; i < 4; i++) left[i] = (float)k[i / 2 * 2] * ray.slopes[i % 2] + (float)k[i / 2 * 2 + 1] * ray.slopes[2 + i % 2];
    for (int i = 0; i < 4; i++) slopes[i] = known ? left[i / 2 * 2] * right[i % 2] + left[i / 2 * 2 + 1] * right[2 + i % 2] : NAN;
    for (int i = 0; i < 2; i++) point[i] = known ? (float)(k[2 * i] * ray.x + k[2 * i + 1] * ray.y + lens.centre[i]) : NAN;
}

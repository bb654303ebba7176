// Instructions of a warp that CUDA C++ has no words for. Each is for all 32 lanes at once.
//
// portable.h includes this in angle brackets: tests put a header of the same name first, which does the same with threads of the
// CPU (test/support/threads/). Which lane holds which value of a matrix is in the PTX ISA, "Matrix Fragments for mma".

#pragma once

#include <stdint.h>

// sums (16, 8) += a (16, 8) b (8, 8). Turing has this one.
__device__ __forceinline__ void mma(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a0), "r"(a1), "r"(b));
}

// All below: from Ampere on.

// sums (16, 8) += a (16, 16) b (16, 8).
__device__ __forceinline__ void mma(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices from shared memory; lanes 8 i to 8 i + 7 have the addresses of the rows of matrix i, 16 bytes each.
__device__ __forceinline__ void ldmatrix(uint32_t (&found)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&found)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)) : "memory");
}

// Begin to copy 16 bytes to shared memory; zeros, and no read, unless `inside`.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0) : "memory");
}

// Wait for all copies that this thread has begun.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// x, of which the compiler does not know that it has it already: what is computed of it is computed anew.
__device__ __forceinline__ int forgotten(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ float exp2_of(float x) {  // within 2 ulp; NaN of NaN, 0 of -infinity
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

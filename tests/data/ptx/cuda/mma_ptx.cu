// Inline PTX: ldmatrix, mma.sync, cp.async.
#include <cuda_bf16.h>
extern "C" __global__ void mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int k) {
  __shared__ __align__(16) __nv_bfloat16 sa[16 * 16], sb[8 * 16];
  float d[4] = {};
  int lane = threadIdx.x;
  for (int k0 = 0; k0 < k; k0 += 16) {
    unsigned dst = (unsigned)__cvta_generic_to_shared(sa + lane * 8);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(dst), "l"(a + (lane / 2) * k + k0 + (lane % 2) * 8));
    if (lane < 16) {
      dst = (unsigned)__cvta_generic_to_shared(sb + lane * 8);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n" ::"r"(dst), "l"(b + (lane / 2) * k + k0 + (lane % 2) * 8));
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;\n");
    __syncthreads();
    unsigned ra[4], rb[2];
    unsigned pa = (unsigned)__cvta_generic_to_shared(sa + (lane % 16) * 16 + (lane / 16) * 8);
    unsigned pb = (unsigned)__cvta_generic_to_shared(sb + (lane % 8) * 16 + ((lane / 8) % 2) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) c[(lane / 4 + (i / 2) * 8) * 8 + (lane % 4) * 2 + i % 2] = d[i];
}

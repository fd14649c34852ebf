// Bulk copies, mbarriers, clusters, wgmma and TMA through inline PTX (sm_90a).
#include <cstdint>
struct alignas(64) TensorMap { char bytes[128]; };
__device__ uint32_t smem(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void wait(uint64_t *bar, int parity) {
  asm volatile(
      "{\n.reg .pred p;\nLOOP:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra LOOP;\nDONE:\n}\n" ::"r"(smem(bar)),
      "r"(parity)
      : "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 1)
    bulk(const float *x, float *y, int n, const __grid_constant__ TensorMap map) {
  extern __shared__ __align__(1024) float tile[];
  __shared__ uint64_t bar;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(smem(&bar)));
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;");
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(&bar)), "r"(8192));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(smem(tile)), "l"(x), "r"(smem(&bar)) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(smem(tile + 1024)), "l"(&map), "r"(0), "r"(blockIdx.x), "r"(smem(&bar)) : "memory");
  }
  wait(&bar, 0);
  uint64_t desc = (uint64_t)((smem(tile) & 0x3ffff) >> 4) | 1ull << 62 | 64ull << 32 | 1ull << 16;
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\n}\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc), "l"(desc), "r"(1));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
  uint32_t peer, leader;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(peer) : "r"(smem(tile)));
  asm volatile("{\n.reg .pred q;\nelect.sync _|q, 0xffffffff;\nselp.u32 %0, 1, 0, q;\n}\n" : "=r"(leader));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(peer), "f"(d[0]));
  for (int i = 0; i < 4; ++i) y[threadIdx.x * 4 + i] = d[i] + leader;
  asm volatile("griddepcontrol.launch_dependents;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
}
extern "C" __global__ void __launch_bounds__(384, 1) specialised(float *y) {
  int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    asm volatile("bar.arrive 1, 384;");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    asm volatile("bar.sync 1, 384;");
    y[threadIdx.x] = 1;
  }
}

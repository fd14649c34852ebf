#include <cuda/atomic>
extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
  __shared__ unsigned local[256];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}
extern "C" __global__ void assorted(int *i, unsigned *u, unsigned long long *l, float *f, double *d) {
  atomicSub(i, 3);
  atomicMin(i + 1, (int)threadIdx.x);
  u[1] = atomicMax(u, threadIdx.x);
  u[2] = atomicExch(u + 3, 7);
  l[0] = atomicCAS(l + 1, 5ull, 6ull);
  atomicAnd(u + 4, 0xff);
  atomicOr(u + 5, 1);
  atomicXor(u + 6, 2);
  f[1] = atomicAdd(f, 1.5f);
  atomicAdd(d, 2.5);
  unsigned mask = __ballot_sync(__activemask(), u[7] > 3);
  u[8] = __popc(mask) + __any_sync(~0u, i[2]) + __all_sync(~0u, i[3]);
  u[9] = __match_any_sync(~0u, u[10]);
}
extern "C" __global__ void ordered(int *flag, int *data) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (threadIdx.x == 0) {
    *data = 42;
    f.store(1, cuda::memory_order_release);
  } else {
    while (f.load(cuda::memory_order_acquire) == 0) {}
    data[threadIdx.x] = *data;
  }
  f.fetch_add(2, cuda::memory_order_relaxed);
}

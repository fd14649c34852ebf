__device__ unsigned philox(uint2 key, uint4 c) {
  for (int i = 0; i < 10; ++i) {
    unsigned h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ key.x, l1, h0 ^ c.w ^ key.y, l0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return c.x;
}
extern "C" __global__ void monte_carlo_pi(unsigned long long *hits, int n, unsigned seed) {
  unsigned long long mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float a = philox(make_uint2(seed, 0), make_uint4(i, 0, 0, 0)) * 2.3283064e-10f, b = philox(make_uint2(seed, 1), make_uint4(i, 1, 0, 0)) * 2.3283064e-10f;
    mine += a * a + b * b <= 1.f;
  }
  mine = __reduce_add_sync(~0u, (unsigned)mine);
  if (threadIdx.x % 32 == 0) atomicAdd(hits, mine);
}

// One query row a warp, online softmax.
template <int D>
__global__ void attention(const float *q, const float *k, const float *v, float *o, int n, float scale) {
  __shared__ float ks[32][D + 1], vs[32][D];
  int lane = threadIdx.x, row = blockIdx.x;
  float m = -INFINITY, l = 0, acc[D / 32] = {};
  for (int j0 = 0; j0 < n; j0 += 32) {
    for (int i = lane; i < 32 * D; i += 32) {
      bool in = j0 + i / D < n;
      ks[i / D][i % D] = in ? k[(size_t)(j0 + i / D) * D + i % D] : 0;
      vs[i / D][i % D] = in ? v[(size_t)(j0 + i / D) * D + i % D] : 0;
    }
    __syncwarp();
    float s = 0;
#pragma unroll 8
    for (int d = 0; d < D; ++d) s += q[(size_t)row * D + d] * ks[lane][d];
    s = j0 + lane < n ? s * scale : -INFINITY;
    float top = s;
    for (int x = 16; x; x >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, x));
    float next = fmaxf(m, top), p = exp2f(s - next), shrink = exp2f(m - next), sum = p;
    for (int x = 16; x; x >>= 1) sum += __shfl_xor_sync(~0u, sum, x);
    l = l * shrink + sum;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) acc[c] *= shrink;
    for (int j = 0; j < 32; ++j) {
      float pj = __shfl_sync(~0u, p, j);
#pragma unroll
      for (int c = 0; c < D / 32; ++c) acc[c] = fmaf(pj, vs[j][c * 32 + lane], acc[c]);
    }
    m = next;
    __syncwarp();
  }
#pragma unroll
  for (int c = 0; c < D / 32; ++c) o[(size_t)row * D + c * 32 + lane] = acc[c] / l;
}
template __global__ void attention<64>(const float *, const float *, const float *, float *, int, float);

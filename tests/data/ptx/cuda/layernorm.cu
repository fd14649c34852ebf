template <int BLOCK>
__global__ void layernorm(const float *x, const float *g, const float *b, float *y, int cols, float eps) {
  __shared__ float2 s[BLOCK / 32];
  float sum = 0, sq = 0;
  for (int i = threadIdx.x; i < cols; i += BLOCK) {
    float v = x[(size_t)blockIdx.x * cols + i];
    sum += v;
    sq = fmaf(v, v, sq);
  }
  for (int o = 16; o; o >>= 1) {
    sum += __shfl_xor_sync(~0u, sum, o);
    sq += __shfl_xor_sync(~0u, sq, o);
  }
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = make_float2(sum, sq);
  __syncthreads();
  sum = sq = 0;
#pragma unroll
  for (int w = 0; w < BLOCK / 32; ++w) { sum += s[w].x; sq += s[w].y; }
  float mean = sum / cols, inv = rsqrtf(sq / cols - mean * mean + eps);
  for (int i = threadIdx.x; i < cols; i += BLOCK)
    y[(size_t)blockIdx.x * cols + i] = (x[(size_t)blockIdx.x * cols + i] - mean) * inv * g[i] + b[i];
}
template __global__ void layernorm<128>(const float *, const float *, const float *, float *, int, float);
template __global__ void layernorm<256>(const float *, const float *, const float *, float *, int, float);

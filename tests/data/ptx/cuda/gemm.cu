// C = A B: naive, tiled in shared memory, register-tiled with double buffering.
extern "C" __global__ void gemm_naive(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  float acc = 0;
  for (int i = 0; i < k; ++i) acc += a[row * k + i] * b[i * n + col];
  c[row * n + col] = acc;
}

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN), 2) gemm_tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float as[2][BK][BM + 4], bs[2][BK][BN];
  const int threads = (BM / TM) * (BN / TN), t = threadIdx.x;
  const int ty = t / (BN / TN), tx = t % (BN / TN);
  float acc[TM][TN] = {};
  int stage = 0;
  auto load = [&](int s, int k0) {
    for (int i = t; i < BM * BK; i += threads) {
      int r = blockIdx.y * BM + i / BK, q = k0 + i % BK;
      as[s][i % BK][i / BK] = r < m && q < k ? a[(size_t)r * k + q] : 0.f;
    }
    for (int i = t; i < BN * BK; i += threads) {
      int q = k0 + i / BN, col = blockIdx.x * BN + i % BN;
      bs[s][i / BN][i % BN] = q < k && col < n ? b[(size_t)q * n + col] : 0.f;
    }
  };
  load(0, 0);
  __syncthreads();
  for (int k0 = 0; k0 < k; k0 += BK) {
    if (k0 + BK < k) load(stage ^ 1, k0 + BK);
#pragma unroll
    for (int q = 0; q < BK; ++q) {
      float ra[TM], rb[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) ra[i] = as[stage][q][ty * TM + i];
#pragma unroll
      for (int j = 0; j < TN; ++j) rb[j] = bs[stage][q][tx * TN + j];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(ra[i], rb[j], acc[i][j]);
    }
    __syncthreads();
    stage ^= 1;
  }
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; ++j) {
      int row = blockIdx.y * BM + ty * TM + i, col = blockIdx.x * BN + tx * TN + j;
      if (row < m && col < n) c[(size_t)row * n + col] = acc[i][j];
    }
}
template __global__ void gemm_tiled<64, 64, 8, 4, 4>(const float *, const float *, float *, int, int, int);

template <int K, typename T>
__global__ void conv2d(const T *__restrict__ in, const T *__restrict__ w, T *__restrict__ out, int width, int height, int channels) {
  __shared__ T tile[16 + K - 1][16 + K - 1];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  T acc = 0;
  for (int c = 0; c < channels; ++c) {
    for (int r = threadIdx.y; r < 16 + K - 1; r += 16)
      for (int q = threadIdx.x; q < 16 + K - 1; q += 16) {
        int gy = blockIdx.y * 16 + r - K / 2, gx = blockIdx.x * 16 + q - K / 2;
        tile[r][q] = gx >= 0 && gy >= 0 && gx < width && gy < height ? in[((size_t)c * height + gy) * width + gx] : T(0);
      }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < K; ++r)
#pragma unroll
      for (int q = 0; q < K; ++q) acc += w[(c * K + r) * K + q] * tile[threadIdx.y + r][threadIdx.x + q];
    __syncthreads();
  }
  if (x < width && y < height) out[(size_t)y * width + x] = acc;
}
template __global__ void conv2d<3, float>(const float *, const float *, float *, int, int, int);
template __global__ void conv2d<5, int>(const int *, const int *, int *, int, int, int);

#include <cuda_fp16.h>
template <typename T> __device__ float load(const T *p) { return float(*p); }
template <typename T, int BLOCK>
__global__ void softmax(const T *x, T *y, int cols) {
  __shared__ float s[BLOCK / 32];
  const T *row = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += BLOCK) top = fmaxf(top, load(row + i));
  for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = top;
  __syncthreads();
  for (int w = 0; w < BLOCK / 32; ++w) top = fmaxf(top, s[w]);
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < cols; i += BLOCK) sum += __expf(load(row + i) - top);
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < BLOCK / 32; ++w) sum += s[w];
  for (int i = threadIdx.x; i < cols; i += BLOCK) y[(size_t)blockIdx.x * cols + i] = T(__expf(load(row + i) - top) / sum);
}
template __global__ void softmax<float, 256>(const float *, float *, int);
template __global__ void softmax<__half, 128>(const __half *, __half *, int);

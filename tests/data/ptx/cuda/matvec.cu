extern "C" __global__ void gemv(const float4 *a, const float4 *x, float *y, int cols4) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  float acc = 0;
#pragma unroll 4
  for (int i = lane; i < cols4; i += 32) {
    float4 u = __ldg(&a[(size_t)row * cols4 + i]), v = __ldg(&x[i]);
    acc += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
  }
  for (int o = 16; o; o >>= 1) acc += __shfl_down_sync(~0u, acc, o);
  if (lane == 0) y[row] = acc;
}
extern "C" __global__ void spmv_csr(const int *ptr, const int *col, const double *val, const double *x, double *y, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  double acc = 0;
  for (int i = ptr[r]; i < ptr[r + 1]; ++i) acc += val[i] * x[col[i]];
  y[r] = acc;
}

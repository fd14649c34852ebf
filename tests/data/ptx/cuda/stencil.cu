__constant__ float weights[9] = {1, 2, 1, 2, 4, 2, 1, 2, 1};
extern "C" __global__ void stencil2d(const float *__restrict__ in, float *__restrict__ out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
  float acc = 0;
#pragma unroll
  for (int dy = -1; dy <= 1; ++dy)
#pragma unroll
    for (int dx = -1; dx <= 1; ++dx) acc += weights[(dy + 1) * 3 + dx + 1] * in[(y + dy) * w + x + dx];
  out[y * w + x] = acc * 0.0625f;
}
extern "C" __global__ void stencil3d(const double *in, double *out, int nx, int ny, int nz) {
  extern __shared__ double plane[];
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int s = threadIdx.y * blockDim.x + threadIdx.x;
  for (int z = 1; z < nz - 1; ++z) {
    bool inside = x < nx && y < ny;
    plane[s] = inside ? in[((long)z * ny + y) * nx + x] : 0;
    __syncthreads();
    if (inside && threadIdx.x > 0 && threadIdx.x + 1 < blockDim.x && threadIdx.y > 0 && threadIdx.y + 1 < blockDim.y)
      out[((long)z * ny + y) * nx + x] = plane[s - 1] + plane[s + 1] + plane[s - blockDim.x] + plane[s + blockDim.x] - 6 * plane[s] +
          in[((long)(z - 1) * ny + y) * nx + x] + in[((long)(z + 1) * ny + y) * nx + x];
    __syncthreads();
  }
}

// Sum: grid-stride loop, warp shuffles, one atomic a block; a template over the vector width.
template <int W> struct Vec;
template <> struct Vec<1> { using T = float; };
template <> struct Vec<4> { using T = float4; };

__device__ float lanes(float v) { return v; }
__device__ float lanes(float4 v) { return (v.x + v.y) + (v.z + v.w); }

template <int W>
__global__ void reduce(const typename Vec<W>::T *x, float *out, int n) {
  __shared__ float partial[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += lanes(x[i]);
  for (int offset = 16; offset; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x >> 5 ? partial[threadIdx.x] : 0.f;
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}
template __global__ void reduce<1>(const float *, float *, int);
template __global__ void reduce<4>(const float4 *, float *, int);

__device__ unsigned done;
extern "C" __global__ void reduce_last_block(const double *x, double *part, double *out, int n) {
  __shared__ double s[256];
  __shared__ bool last;
  double sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += x[i];
  s[threadIdx.x] = sum;
  __syncthreads();
  for (int w = 128; w; w >>= 1) {
    if (threadIdx.x < w) s[threadIdx.x] += s[threadIdx.x + w];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    double total = 0;
    for (int b = 0; b < gridDim.x; ++b) total += part[b];
    *out = total;
  }
}

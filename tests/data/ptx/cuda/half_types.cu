#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
extern "C" __global__ void axpy_half(const __half2 *x, __half2 *y, __half a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}
extern "C" __global__ void axpy_bf16(const __nv_bfloat162 *x, __nv_bfloat162 *y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float2 v = __bfloat1622float2(x[i]), w = __bfloat1622float2(y[i]);
    y[i] = __floats2bfloat162_rn(a * v.x + w.x, a * v.y + w.y);
  }
}
extern "C" __global__ void to_fp8(const float *x, __nv_fp8_e4m3 *y, __nv_fp8_e5m2 *z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = __nv_fp8_e4m3(x[i]);
    z[i] = __nv_fp8_e5m2(x[i]);
  }
}
extern "C" __global__ void half_math(const __half *x, __half *y) {
  int i = threadIdx.x;
  y[i] = __hadd(hsqrt(x[i]), __hmul(hexp2(x[i]), __hmax(x[i], y[i])));
}

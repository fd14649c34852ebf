// Kernels whose PTX nvcc made; compiled by: nvcc -ptx -arch=sm_90a -O3 kernels.cu
#include <cuda_fp16.h>
extern "C" __global__ void reduce(const float* in, float* out, int n) {
    __shared__ float part[32];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}
extern "C" __global__ void reduce_tree(const float* in, float* out, int n) {
    extern __shared__ float buf[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    buf[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 32; d >>= 1) {
        if (t < d) buf[t] += buf[t + d];
        __syncthreads();
    }
    if (t < 32) {
        volatile float* v = buf;
        v[t] += v[t + 32]; __syncwarp();
        for (int d = 16; d; d >>= 1) { float x = v[t + d]; __syncwarp(); if (t < d) v[t] += x; __syncwarp(); }
        if (t == 0) out[blockIdx.x] = buf[0];
    }
}
extern "C" __global__ void transpose(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_naive(const float* in, float* out, int rows, int cols) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < cols && y < rows) out[x * rows + y] = in[y * cols + x];
}
extern "C" __global__ void sgemm_naive(const float* A, const float* B, float* C, int N) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= N || y >= N) return;
    float acc = 0;
    for (int k = 0; k < N; ++k) acc += A[y * N + k] * B[k * N + x];
    C[y * N + x] = acc;
}
extern "C" __global__ void sgemm_tiled(const float* A, const float* B, float* C, int N) {
    __shared__ float a[32][32], b[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + ty;
    float acc = 0;
    for (int k = 0; k < N; k += 32) {
        a[ty][tx] = A[y * N + k + tx];
        b[ty][tx] = B[(k + ty) * N + x];
        __syncthreads();
        for (int i = 0; i < 32; ++i) acc += a[ty][i] * b[i][tx];
        __syncthreads();
    }
    C[y * N + x] = acc;
}
// 128 x 128 block, 8 x 8 a thread, 256 threads.
extern "C" __global__ void __launch_bounds__(256) sgemm_register(const float* A, const float* B, float* C, int N) {
    __shared__ __align__(16) float a[8][128];
    __shared__ __align__(16) float b[8][128];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    const float* Ab = A + blockIdx.y * 128 * N;
    const float* Bb = B + blockIdx.x * 128;
    int ar = t / 2, ac = (t % 2) * 4, br = t / 32, bc = (t % 32) * 4;
    float acc[8][8] = {};
    for (int k = 0; k < N; k += 8) {
        float4 av = *(const float4*)(Ab + ar * N + k + ac);
        float4 bv = *(const float4*)(Bb + (k + br) * N + bc);
        a[ac][ar] = av.x; a[ac + 1][ar] = av.y; a[ac + 2][ar] = av.z; a[ac + 3][ar] = av.w;
        *(float4*)&b[br][bc] = bv;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float4 a0 = *(float4*)&a[i][ty * 4], a1 = *(float4*)&a[i][64 + ty * 4];
            float4 b0 = *(float4*)&b[i][tx * 4], b1 = *(float4*)&b[i][64 + tx * 4];
            float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
            float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
            for (int m = 0; m < 8; ++m)
#pragma unroll
                for (int n = 0; n < 8; ++n) acc[m][n] += x[m] * y[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < 8; ++m) {
        int row = blockIdx.y * 128 + (m / 4) * 64 + ty * 4 + m % 4;
        float* c = C + row * N + blockIdx.x * 128;
        *(float4*)(c + tx * 4) = make_float4(acc[m][0], acc[m][1], acc[m][2], acc[m][3]);
        *(float4*)(c + 64 + tx * 4) = make_float4(acc[m][4], acc[m][5], acc[m][6], acc[m][7]);
    }
}
extern "C" __global__ void reduce_vector(const float4* in, float* out, int n) {
    __shared__ float part[32];
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int step = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        float4 a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step];
        s0 += a.x + a.y + a.z + a.w; s1 += b.x + b.y + b.z + b.w; s2 += c.x + c.y + c.z + c.w; s3 += d.x + d.y + d.z + d.w;
    }
    for (; i < n; i += step) { float4 a = in[i]; s0 += a.x + a.y + a.z + a.w; }
    float sum = s0 + s1 + s2 + s3;
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}
__device__ __noinline__ int collatz(int n) { int c = 0; while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; ++c; } return c; }
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void calls(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = collatz(i + 1) * 1000 + fib(i % 8);
}
extern "C" __global__ void histogram(const float* in, unsigned* out, int n) {
    __shared__ unsigned bins[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[min(63, max(0, (int)((in[i] + 1.0f) * 32.0f)))], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}
__device__ unsigned ticket;
extern "C" __global__ void last_block(const float* in, float* partial, float* out, int n) {
    __shared__ float part[256];
    __shared__ bool last;
    int t = threadIdx.x;
    float s = 0;
    for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) s += in[i];
    part[t] = s; __syncthreads();
    for (int d = 128; d; d >>= 1) { if (t < d) part[t] += part[t + d]; __syncthreads(); }
    if (t == 0) { partial[blockIdx.x] = part[0]; __threadfence(); last = atomicAdd(&ticket, 1) == gridDim.x - 1; }
    __syncthreads();
    if (last && t == 0) { float x = 0; for (int i = 0; i < gridDim.x; ++i) x += ((volatile float*)partial)[i]; out[0] = x; ticket = 0; }
}
extern "C" __global__ void softmax(const float* in, float* out, int n) {
    __shared__ float red[256];
    const float* row = in + blockIdx.x * n;
    int t = threadIdx.x;
    float m = -1e30f;
    for (int i = t; i < n; i += 256) m = fmaxf(m, row[i]);
    red[t] = m; __syncthreads();
    for (int d = 128; d; d >>= 1) { if (t < d) red[t] = fmaxf(red[t], red[t + d]); __syncthreads(); }
    m = red[0]; __syncthreads();
    float s = 0;
    for (int i = t; i < n; i += 256) s += expf(row[i] - m);
    red[t] = s; __syncthreads();
    for (int d = 128; d; d >>= 1) { if (t < d) red[t] += red[t + d]; __syncthreads(); }
    s = red[0];
    for (int i = t; i < n; i += 256) out[blockIdx.x * n + i] = expf(row[i] - m) / s;
}
extern "C" __global__ void local_array(const int* idx, int* out, int n) {
    int stack[16];
    for (int i = 0; i < 16; ++i) stack[i] = i * i + threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x, s = 0;
    for (int j = 0; j < 4; ++j) { int k = idx[(i + j) % n] & 15; stack[k] += j; s += stack[(k * 7) & 15]; }
    if (i < n) out[i] = s;
}

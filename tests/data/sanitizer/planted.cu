// Kernels that each of compute-sanitizer's tools must find fault with, and one that faults by itself;
// capture.sh runs them.
#include <cstdlib>
#include <cuda_runtime.h>

extern "C" __global__ void out_of_bounds(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }

extern "C" __global__ void race(float* x) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[(threadIdx.x + 37) % 256];
}

extern "C" __global__ void divergent(float* x) {
    if (threadIdx.x < 7) __syncthreads();
    x[threadIdx.x] = 2.0f;
}

extern "C" __global__ void fault(float* x) { x[(1ull << 40) + threadIdx.x] = 1.0f; }

extern "C" __global__ void clean(float* x) { x[threadIdx.x] += 1.0f; }

int main(int argc, char** argv) {
    float* x = nullptr;
    cudaMalloc(&x, 1024);
    switch (argc > 1 ? atoi(argv[1]) : 0) {
        case 1: out_of_bounds<<<8, 256>>>(x); break;
        case 2: race<<<4, 256>>>(x); break;
        case 3: divergent<<<1, 32>>>(x); break;
        case 4: fault<<<1, 256>>>(x); break;
        default: clean<<<1, 256>>>(x);
    }
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}

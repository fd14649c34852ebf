// CUB's block-wide sum around 16-byte loads, four in flight, as its device-wide reduction does it: partial sums
// of an even share for each block, then one block over those.
//@ let GRID = min(sm_count * 8, ceil_div(n, 4096))
//@ workspace partial f32[GRID] poison
//@ launch cub_partial_sums grid=(GRID) block=(256) args=(x, partial, n)
//@ launch cub_total grid=(1) block=(256) args=(partial, out, GRID)

#include <cub/block/block_reduce.cuh>

using BlockReduce = cub::BlockReduce<float, 256>;

extern "C" __global__ void __launch_bounds__(256) cub_partial_sums(const float* __restrict__ x, float* partial,
                                                                   unsigned long long n) {
    __shared__ typename BlockReduce::TempStorage storage;
    const float4* vectors = reinterpret_cast<const float4*>(x);
    const unsigned long long tile = 4 * 256, tiles = n / 4 / tile;
    float sum = 0;
    for (unsigned long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        float4 v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = vectors[t * tile + i * 256 + threadIdx.x];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    for (unsigned long long i = tiles * tile * 4 + blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull)
        sum += x[i];
    sum = BlockReduce(storage).Sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) cub_total(const float* __restrict__ partial, float* out, int count) {
    __shared__ typename BlockReduce::TempStorage storage;
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += 256) sum += partial[i];
    sum = BlockReduce(storage).Sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

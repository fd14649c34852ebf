// One block a row, three passes over it.
__device__ float reduced(float value, bool largest, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = shared[threadIdx.x + half];
            shared[threadIdx.x] = largest ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
        }
        __syncthreads();
    }
    float all = shared[0];
    __syncthreads();
    return all;
}

extern "C" __global__ void softmax(const float* x, float* out, int cols) {
    __shared__ float shared[256];
    const float* from = x + (size_t)blockIdx.x * cols;
    float* to = out + (size_t)blockIdx.x * cols;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, from[i]);
    most = reduced(most, true, shared);
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += 256) sum += __expf(from[i] - most);
    sum = reduced(sum, false, shared);
    for (int i = threadIdx.x; i < cols; i += 256) to[i] = __expf(from[i] - most) / sum;
}

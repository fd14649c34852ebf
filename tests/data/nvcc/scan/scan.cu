// Running sums along rows of 2048: one block a row, each thread adds up eight neighbours in shared memory.
extern "C" __global__ void scan(const float* x, float* out) {
    __shared__ float row[2048];
    __shared__ float sums[256];
    const float* from = x + (size_t)blockIdx.x * 2048;
    float* to = out + (size_t)blockIdx.x * 2048;
    int t = threadIdx.x;
    for (int i = t; i < 2048; i += 256) row[i] = from[i];
    __syncthreads();
    for (int j = 1; j < 8; j++) row[8 * t + j] += row[8 * t + j - 1];
    sums[t] = row[8 * t + 7];
    __syncthreads();
    for (int distance = 1; distance < 256; distance *= 2) {
        float other = t >= distance ? sums[t - distance] : 0;
        __syncthreads();
        sums[t] += other;
        __syncthreads();
    }
    float before = t > 0 ? sums[t - 1] : 0;
    for (int j = 0; j < 8; j++) row[8 * t + j] += before;
    __syncthreads();
    for (int i = t; i < 2048; i += 256) to[i] = row[i];
}

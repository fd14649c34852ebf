// y = A v; one warp a row of 4096 columns, each lane takes eight neighbours at a time.
extern "C" __global__ void matvec(const float* a, const float* v, float* y, int rows) {
    const int cols = 4096;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* line = a + (size_t)row * cols;
    float sum = 0;
    for (int i = lane * 8; i < cols; i += 256)
        for (int j = 0; j < 8; j++) sum += line[i + j] * v[i + j];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) y[row] = sum;
}

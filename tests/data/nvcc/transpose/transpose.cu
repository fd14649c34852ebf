// Through a tile in shared memory whose columns all lie in one bank.
extern "C" __global__ void transpose(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[32][32];
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * 32 + tx, row = blockIdx.y * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        if (row + j < rows && col < cols) tile[ty + j][tx] = x[(size_t)(row + j) * cols + col];
    __syncthreads();
    col = blockIdx.y * 32 + tx;
    row = blockIdx.x * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        if (row + j < cols && col < rows) out[(size_t)(row + j) * rows + col] = tile[tx][ty + j];
}

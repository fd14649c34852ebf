// The textbook transpose: tiles of 32 × 32 through shared memory, one column of padding against bank
// conflicts, one element at a time.
//@ launch transpose_tiled grid=(ceil_div(cols, 32), ceil_div(rows, 32)) block=(32, 8) args=(x, out, rows, cols)

extern "C" __global__ void transpose_tiled(const float* __restrict__ x, float* __restrict__ out, unsigned rows,
                                           unsigned cols) {
    __shared__ float tile[32][33];
    unsigned column = blockIdx.x * 32 + threadIdx.x;
    unsigned row = blockIdx.y * 32 + threadIdx.y;
    for (unsigned i = 0; i < 32; i += 8)
        if (row + i < rows && column < cols) tile[threadIdx.y + i][threadIdx.x] = x[size_t(row + i) * cols + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (unsigned i = 0; i < 32; i += 8)
        if (row + i < cols && column < rows) out[size_t(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}

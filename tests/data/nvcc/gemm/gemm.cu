// C = A B by tiles of 64 × 64, four by four a thread; all sizes are multiples of 64.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int n, int k) {
    __shared__ float as[64][16], bs[16][64];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    int row = blockIdx.y * 64, col = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = threadIdx.x; i < 1024; i += 256) {
            as[i / 16][i % 16] = a[(size_t)(row + i / 16) * k + k0 + i % 16];
            bs[i / 64][i % 64] = b[(size_t)(k0 + i / 64) * n + col + i % 64];
        }
        __syncthreads();
        for (int kk = 0; kk < 16; kk++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += as[tx + 16 * i][kk] * bs[kk][ty + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(size_t)(row + tx + 16 * i) * n + col + ty + 16 * j] = sum[i][j];
}

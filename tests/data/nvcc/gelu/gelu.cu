// The error-function form; eight neighbours a thread.
extern "C" __global__ void gelu(const float* x, float* out, int n) {
    int i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 7 < n) {
        for (int j = 0; j < 8; j++) out[i + j] = 0.5f * x[i + j] * (1.0f + erff(x[i + j] * 0.70710678f));
    } else {
        for (; i < n; i++) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
    }
}
